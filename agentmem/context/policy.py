"""Built-in and custom policies: discarding, automatic pins, summaries."""

from dataclasses import dataclass, field

from agentmem.context.clip_text import cut_middle, marker_of
from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.protocols import AutoPin, Discardable, Summarizer
from agentmem.types import Role, StoredMessage, check_name
from agentmem.types.checks import is_number
from agentmem.types.fields import check_fields
from agentmem.types.short_repr import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOldResults(ShortRepr):
    """
    Discard tool results that are more than *turns* turns old, at least 0.

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
    Pin the first user message of each branch, the task, under *key*.

    A message longer than *max_chars* is pinned clipped, with a line that names its source: a pin is
    never dropped, and one larger than the window would make every prompt fail. A ``data:`` URL is
    reduced to its type and size.

    Raises:
        ConfigError: *key* is not a valid pin key, or *max_chars* is less than 1.
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
    Policies for fitting a conversation into its budget.

    Args:
        summarizer: summarizes messages that leave the window; None for no summaries.
        discardable: decides which messages are dropped first; None for none.
        auto_pin: decides which new messages are pinned; None for none.
        keep_recalled: keep recalled messages in place until their turn leaves the window, instead
            of for one prompt only: the cached prefix then extends past them. Only messages of the
            branch itself are recalled then.
        compact_ahead: fill level of the window, as a share of its room, above which compaction runs
            in the background; None to compact only when the window is full, during assembly. Useful
            with summaries by a model. The minimum is halfway between the budget's low-water mark
            and full.
        recall_sessions: recall messages of the user's other sessions too.
        mark_replaced: mark earlier statements of the user that a new message replaces, by its words
            alone, as `Session.supersede()` does; only clear cases.
    """

    summarizer: Summarizer | None = field(default_factory=ExtractiveSummarizer)
    discardable: Discardable | None = None
    auto_pin: AutoPin | None = None
    keep_recalled: bool = False
    compact_ahead: float | None = None
    recall_sessions: bool = False
    mark_replaced: bool = True

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        mark = self.compact_ahead
        if mark is not None and not (is_number(mark) and 0 < mark <= 1):
            raise ConfigError(
                f"compact_ahead must be greater than 0 and at most 1, got {mark!r:.80}"
            )
