"""Conversations, and what is asked about them, whatever format they come in."""

from dataclasses import dataclass
from datetime import datetime

from agentmem.types import BranchId, Message, MessageId, Origin, StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, and the positions of the turns that answer it."""

    text: str
    kind: str
    evidence: frozenset[int]
    until: int
    """The last position that may be searched."""

    answer: str = ""
    """The expected answer, or the labelled memories that bear it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    """A conversation as one branch, and what is asked about it, in the order of *until*."""

    name: str
    speakers: tuple[str, str]
    messages: tuple[StoredMessage, ...]
    questions: tuple[Question, ...]


def stored_message(position: int, message: Message, at: datetime) -> StoredMessage:
    """Return *message* as it is stored at *position* of the only branch."""
    return StoredMessage(
        id=MessageId(position),
        branch_id=BranchId(1),
        position=position,
        message=message,
        origin=Origin.SAID,
        created_at=at,
    )
