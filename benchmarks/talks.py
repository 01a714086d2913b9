"""Conversations, and what is asked about them, whatever format they come in."""

from dataclasses import dataclass

from agentmem.types import StoredMessage


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
