"""Sessions, their owners and their branches."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from agentmem.errors import InvalidInputError
from agentmem.types.fields import Checked
from agentmem.types.messages import BranchId, Inherit, SessionId
from agentmem.types.short_repr import ShortRepr
from agentmem.types.text import check_text

MAX_NAME_CHARS = 500
"""Maximum length of a namespace, user, session key, pin key or client key."""


def check_name(what: str, name: str) -> str:
    """
    Return *name* if it is a valid identifier: any text of 1 to 500 characters.

    Names are compared exactly, case and white space included, and never parsed.

    Raises:
        InvalidInputError: it is empty, too long, or not storable text.
    """
    check_text(what, name)
    if not 1 <= len(name) <= MAX_NAME_CHARS:
        raise InvalidInputError(
            f"{what} must have 1 to {MAX_NAME_CHARS} characters, got {len(name)}"
        )
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope(ShortRepr):
    """Tenant of a read or write: namespace and user. An id alone gives no access."""

    namespace: str = "default"
    user: str = "default"

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        check_name("user", self.user)


class BranchState(StrEnum):
    """OPEN can be written; the others are read-only."""

    OPEN = "open"
    ENDED = "ended"
    DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchInfo(Checked):
    """A line of a session. *forked_at* is 0 and *parent* None for ``main``."""

    id: BranchId
    session_id: SessionId
    name: str
    parent: BranchId | None
    forked_at: int
    """Position of the last message of the parent in this branch's view."""

    head: int
    """Position of the newest message of this branch's view."""

    inherit: Inherit
    state: BranchState
    is_line: bool = False
    """Whether it is a line, a current or former main branch of the session; else a subtask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo(Checked):
    """One conversation. *num_messages* counts all branches."""

    id: SessionId
    scope: Scope
    key: str
    main: BranchId
    line: BranchId
    """The current line: ``main``, unless a message was edited or an answer regenerated."""

    num_messages: int
    created_at: datetime
    updated_at: datetime
    timezone: str | None = None
    """Name of the time zone of shown dates; None is UTC."""

    day: date | None = None
    """The date that chat templates print, if they do; None for sessions of older versions."""
