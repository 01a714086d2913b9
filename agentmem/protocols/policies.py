"""Policies of the context: summaries, what is dropped first, what is pinned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from agentmem.types import Role, StoredMessage
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage(Checked):
    """
    A text that a summary is made of: a message, or a line of a summary that is compacted again.

    Args:
        position: of the message; of the first one where *last* is given.
        role: who said it, never the system: a summary that a model wrote has the assistant's.
        text: the text of the message.
        last: position of the last message that it may be from, where no single one is known.
        day: when it was said, where that is known.
        speaker: who said it as summaries write it, such as ``tool result (search)``; by default
            the role.
    """

    position: int
    role: Role
    text: str
    last: int | None = None
    day: date | None = None
    speaker: str = ""


class Summarizer(Protocol):
    """Writes a text that stands for a run of messages."""

    @property
    def author(self) -> str:
        """Who wrote the summary, for the log."""
        ...

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Sum up *passages* in at most *max_tokens*, as *count* counts a text.

        The same passages give the same text, or the prompt would not be the same bytes for the
        same state. An empty text means that nothing could be said in so few tokens.
        """
        ...


class Discardable(Protocol):
    """Decides what of the older conversation may be dropped before whole turns are."""

    def discards(self, stored: StoredMessage, *, age: int) -> bool:
        """
        Return whether a line that says where it is may stand in place of *stored*.

        It is asked when the window slides, never in between, so that it costs no prefix.

        Args:
            stored: a message of an older turn.
            age: how many turns have begun since; 1 is the turn before the current one.
        """
        ...


class AutoPin(Protocol):
    """Decides what is pinned as it is said."""

    def pin(self, stored: StoredMessage, *, is_first: bool) -> tuple[str, str] | None:
        """
        Return key and text of a pin of this branch to make of *stored*, or None.

        *is_first* tells whether it is the first message that this branch itself has.
        """
        ...
