"""Choices that a user can make or replace: what may be discarded, and who writes summaries."""

from dataclasses import dataclass, field

from agentmem.context.clip import cut_middle
from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.context.pieces import marker_of
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.protocols import AutoPin, Discardable, Summarizer
from agentmem.types import Role, StoredMessage, check_name
from agentmem.types.fields import check_fields
from agentmem.types.short_repr import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOldResults(ShortRepr):
    """
    Drop tool results that are older than *turns* turns, from 0 up.

    Raises:
        ConfigError: *turns* is not an integer of at least 0.
    """

    turns: int = 2

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        if self.turns < 0:
            raise ConfigError(f"turns must be an integer of at least 0, got {self.turns!r:.80}")

    def discards(self, stored: StoredMessage, *, age: int) -> bool:
        return stored.message.role is Role.TOOL and age > self.turns


@dataclass(frozen=True, slots=True, kw_only=True)
class PinTask(ShortRepr):
    """
    Pin the first user message of each branch under *key*: the task is never forgotten.

    Of one that is longer than *max_chars* the beginning and the end are pinned, around a line that
    says where the rest is: a pin is never dropped, and one that is larger than the window would let
    no prompt through any more. Of a ``data:`` URL the type and the size are pinned.

    Raises:
        ConfigError: *key* can be that of no pin, or *max_chars* is under 1.
    """

    key: str = "task"
    max_chars: int = 4000

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        try:
            check_name("PinTask.key", self.key)
        except InvalidInputError as error:
            raise ConfigError(str(error)) from error
        if self.max_chars < 1:
            raise ConfigError(f"max_chars must be at least 1, got {self.max_chars!r:.80}")

    def pin(self, stored: StoredMessage, *, is_first: bool) -> tuple[str, str] | None:
        if not is_first or stored.message.role is not Role.USER:
            return None
        text = stored.message.memory_text
        if len(text) > self.max_chars:
            text = cut_middle(text, self.max_chars, marker_of(stored))
        return self.key, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy(ShortRepr):
    """
    How a conversation is cut down to its budget.

    Args:
        summarizer: writes what stands for messages that left the window; None for no summaries.
        discardable: what is dropped first; None for nothing before its turn.
        auto_pin: what is pinned as it is said; None for nothing.
        keep_recalled: keep recalled messages where they were first shown, until their turn leaves
            the window, and not only for one prompt: the prefix then goes on through them. Only
            messages of the branch itself are recalled then.
        compact_ahead: how full the window may be, as a share of its room, before what will leave it
            is summed up in the background; None for only when it is full, in the prompt that needs
            the room. It is worth it where a model writes the summaries. A share below halfway from
            the budget's low water to full is taken for that.
        recall_sessions: recall messages of the user's other sessions too.
    """

    summarizer: Summarizer | None = field(default_factory=ExtractiveSummarizer)
    discardable: Discardable | None = None
    auto_pin: AutoPin | None = None
    keep_recalled: bool = False
    compact_ahead: float | None = None
    recall_sessions: bool = False

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        mark = self.compact_ahead
        is_number = isinstance(mark, int | float) and not isinstance(mark, bool)
        if mark is not None and not (is_number and 0 < mark <= 1):
            raise ConfigError(
                f"compact_ahead must be greater than 0 and at most 1, got {mark!r:.80}"
            )
