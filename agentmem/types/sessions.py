"""Whose conversation it is, and its lines."""

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum

from agentmem.errors import InvalidInputError
from agentmem.types.fields import Checked
from agentmem.types.messages import BranchId, Inherit, SessionId
from agentmem.types.text import check_text

MAX_NAME_CHARS = 500
"""Length of a namespace, user, session key, pin key or client key."""


def check_name(what: str, name: str) -> str:
    """
    Return *name* if it can identify something: any text of 1 to 500 characters.

    Names are compared as they are, case and white space included, and never parsed.

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
class Scope:
    """Who asks. Every read and write of the store is bound to one: an id alone opens nothing."""

    namespace: str = "default"
    user: str = "default"

    def __post_init__(self) -> None:
        check_name("namespace", self.namespace)
        check_name("user", self.user)


class BranchState(StrEnum):
    """OPEN can be written; the others are history."""

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
    """Position of the last message of the parent that this branch sees."""

    head: int
    """Position of the newest message of this branch's view."""

    inherit: Inherit
    state: BranchState
    is_line: bool = False
    """Whether it is a line that the session itself is or was on, as ``main`` is; else a subtask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo(Checked):
    """One conversation. *num_messages* counts all branches."""

    id: SessionId
    scope: Scope
    key: str
    main: BranchId
    line: BranchId
    """The line that it is on: ``main``, unless an earlier message was edited or answered anew."""

    num_messages: int
    created_at: datetime
    updated_at: datetime
    timezone: str | None = None
    """Name of the time zone that its dates are shown in; None is UTC."""

    day: date | None = None
    """The day that templates print which print one; None for sessions of older versions."""
