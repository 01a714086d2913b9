"""A prompt in the making: what it would show now."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentmem.context.folding import Folder
from agentmem.context.pieces import Shown, Unit
from agentmem.protocols import Hit
from agentmem.types import (
    BranchId,
    Message,
    Pin,
    Role,
    StoredMessage,
    Summary,
    TextPart,
    Tier,
)

_SUMMARY_HEADING = "Summary of the earlier conversation:"
_RECALL_HEADING = "Recalled from the earlier conversation:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """
    All parts of a prompt, in their order.

    Args:
        older: older turns, each a unit that stands or leaves as a whole.
        rounds: finished calls of the current turn with their results, oldest first.
        core: what may never leave: the user's message, and the last round.
        loaded: every message that was read, by position.
        folder: sums up what leaves; None for no summaries.
    """

    branch_id: BranchId
    pins: tuple[Pin, ...]
    summaries: tuple[Summary, ...]
    older: tuple[Unit, ...]
    rounds: tuple[Unit, ...]
    core: Unit
    loaded: Mapping[int, StoredMessage]
    folder: Folder | None
    hits: tuple[Hit, ...] = ()

    @property
    def system(self) -> tuple[Message, ...]:
        """
        The one system message: each pin byte for byte, then the summaries.

        A summary never stands before a pin, and says of itself that it is one.
        """
        texts = [pin.text for pin in self.pins]
        if self.summaries:
            texts.append("\n".join([_SUMMARY_HEADING, *(s.text for s in self.summaries)]))
        return _one_message(Role.SYSTEM, "\n\n".join(texts))

    @property
    def recalled(self) -> tuple[Message, ...]:
        """The one message of all that was recalled, oldest first."""
        hits = sorted(self.hits, key=lambda hit: (hit.stored.created_at, hit.stored.position))
        lines = [
            f"[{hit.stored.created_at:%Y-%m-%d %H:%M}, {hit.stored.message.role}] "
            f"{hit.stored.message.text}"
            for hit in hits
        ]
        return _one_message(Role.USER, "\n".join([_RECALL_HEADING, *lines]) if lines else "")

    @property
    def current(self) -> tuple[Shown, ...]:
        """The current turn as it is shown: the user's message, then rounds, then the last."""
        begins = 1 if self.core and self.core[0].message.role is Role.USER else 0
        rounds = (shown for unit in self.rounds for shown in unit)
        return (*self.core[:begins], *rounds, *self.core[begins:])

    @property
    def recent(self) -> tuple[Shown, ...]:
        return tuple(shown for unit in self.older for shown in unit)

    @property
    def window(self) -> tuple[Shown, ...]:
        """All messages of the branch that are shown where they were said."""
        return (*self.recent, *self.current)

    @property
    def messages(self) -> tuple[Message, ...]:
        return (
            *self.system,
            *messages_of(self.recent),
            *self.recalled,
            *messages_of(self.current),
        )

    def shown(self) -> Iterator[tuple[Shown, Tier]]:
        """Give each message of the branch that is shown, and the tier that shows it."""
        yield from ((shown, Tier.RECENT) for shown in self.recent)
        yield from ((shown, Tier.CURRENT) for shown in self.current)
        for hit in self.hits:
            if hit.is_local:
                yield Shown(stored=hit.stored, message=hit.stored.message), Tier.RETRIEVED


def messages_of(shown: Sequence[Shown]) -> list[Message]:
    """Give the messages as they are shown."""
    return [piece.message for piece in shown]


def _one_message(role: Role, text: str) -> tuple[Message, ...]:
    return (Message(role=role, parts=(TextPart(text=text),)),) if text else ()
