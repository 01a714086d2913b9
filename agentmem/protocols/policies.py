"""Interfaces of context policies: summarizers, discarding, automatic pins."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol

from agentmem.types import Role, StoredMessage
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage(Checked):
    """
    An input of a summary: a message, or a line of a summary that is compacted again.

    Args:
        position: of the message; of the first one where *last* is given.
        role: of the speaker, never the system's: a summary by a model has the assistant's.
        text: the text of the message.
        last: position of the last message that it may be from, where several are possible.
        day: date of the message, where known.
        speaker: the speaker as shown in summaries, such as ``tool result (search)``; by default
            the role.
    """

    position: int
    role: Role
    text: str
    last: int | None = None
    day: date | None = None
    speaker: str = ""


class Summarizer(Protocol):
    """Summarizes a run of messages."""

    @property
    def author(self) -> str:
        """The author of the summary, for the log."""
        ...

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Summarize *passages* in at most *max_tokens*, counted by *count*.

        Must be deterministic: the same state has to give a byte-identical prompt. An empty text
        means that no summary fits.
        """
        ...


class Discardable(Protocol):
    """Decides which older messages are dropped before whole turns."""

    def discards(self, stored: StoredMessage, *, age: int) -> bool:
        """
        Return whether a one-line stub with its location may replace *stored*.

        Called only when the window slides, so that it does not break the cached prefix.

        Args:
            stored: a message of an older turn.
            age: the number of later turns; 1 is the turn before the current one.
        """
        ...


class AutoPin(Protocol):
    """Decides which new messages are pinned."""

    def pin(self, stored: StoredMessage, *, is_first: bool) -> tuple[str, str] | None:
        """
        Return key and text of a pin to set in this branch for *stored*, or None.

        *is_first*: whether it is the first message of the branch itself.
        """
        ...
