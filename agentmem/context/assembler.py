"""
Builds a prompt from plain values: pins, then the recent window, then the current turn.

It decides and records; it reads and writes nothing. `Memory` loads what it needs and stores what
it returns.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agentmem.config import Budget
from agentmem.context.spans import hidden, shown_spans, subtract, with_gaps
from agentmem.context.window import slide
from agentmem.errors import ContextOverflowError
from agentmem.protocols import RenderedChat, TokenCounter
from agentmem.types import (
    BranchId,
    Message,
    Pin,
    Prompt,
    Role,
    Rule,
    Span,
    TextPart,
    Tier,
    TruncationRecord,
    Turn,
    freeze,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchView:
    """
    What the assembler is shown of a branch.

    Args:
        head: position of the newest message.
        turns: the end of the branch, oldest first; at least from *window_start* on.
        window_start: position where the window began last time, None for a new window.
        recorded: runs of positions that the log of this branch already names as left out.
        inherited: positions up to this one are a parent's, not shown unless among *turns*.
    """

    branch_id: BranchId
    head: int
    pins: tuple[Pin, ...]
    turns: tuple[Turn, ...]
    window_start: int | None = None
    recorded: tuple[Span, ...] = ()
    inherited: int = 0


def system_message(pins: Sequence[Pin]) -> tuple[Message, ...]:
    """Write all pins as the one system message, each byte for byte; none without pins."""
    if not pins:
        return ()
    text = "\n\n".join(pin.text for pin in pins)
    return (Message(role=Role.SYSTEM, parts=(TextPart(text=text),)),)


def _messages(turns: Sequence[Turn]) -> list[Message]:
    return [stored.message for turn in turns for stored in turn.messages]


class Assembler:
    """Assembles prompts that a *counter* counts and a *budget* bounds."""

    def __init__(self, counter: TokenCounter, budget: Budget) -> None:
        self._counter = counter
        self._budget = budget

    def assemble(self, view: BranchView) -> Prompt:
        """
        Choose, render and account for the prompt of *view*.

        Raises:
            ContextOverflowError: pins and current turn alone are over the budget.
        """
        system = system_message(view.pins)
        older, current = list(view.turns[:-1]), list(view.turns[-1:])
        core = self._render([*system, *_messages(current)])
        room = self._budget.prompt - len(core.token_ids)
        if room < 0:
            raise self._overflow(system, current, core)
        recent = older[self._first_kept(view, older, current, room) :]
        rendered = self._render([*system, *_messages([*recent, *current])])
        # Counts of single messages are exact for most templates. Where one is not, the whole
        # render is what counts, and the window gives way.
        while recent and len(rendered.token_ids) > self._budget.prompt:
            recent = recent[1:]
            rendered = self._render([*system, *_messages([*recent, *current])])
        layout = _layout(view, recent, current)
        return Prompt(
            branch_id=view.branch_id,
            head=view.head,
            messages=(*system, *_messages([*recent, *current])),
            text=rendered.text,
            token_ids=rendered.token_ids,
            tokens_by_tier=freeze(self._tiers(system, recent, current, rendered)),
            layout=layout,
            truncations=self._records(view, layout, room),
            context=self._budget.context,
            reply=self._budget.reply,
            fingerprint=self._counter.fingerprint,
        )

    def _render(self, messages: Sequence[Message], *, generate: bool = True) -> RenderedChat:
        return self._counter.render(messages, add_generation_prompt=generate)

    def _length(self, messages: Sequence[Message]) -> int:
        return len(self._render(messages, generate=False).token_ids) if messages else 0

    def _size(self, turn: Turn) -> int:
        return sum(self._counter.count(stored.message) for stored in turn.messages)

    def _first_kept(
        self, view: BranchView, older: Sequence[Turn], current: Sequence[Turn], room: int
    ) -> int:
        start = None
        if view.window_start is not None:
            start = sum(turn.last < view.window_start for turn in older)
        return slide(
            [self._size(turn) for turn in older],
            start=start,
            room=room,
            current=sum(self._size(turn) for turn in current),
            low_water=self._budget.low_water,
        )

    def _tiers(
        self,
        system: Sequence[Message],
        recent: Sequence[Turn],
        current: Sequence[Turn],
        rendered: RenderedChat,
    ) -> dict[Tier, int]:
        """
        Attribute each token of the prompt to one tier.

        Tiers are cut where the render of a longer list goes on from a shorter one, so that the
        numbers add up to the prompt even where a template merges or rewrites.
        """
        body = [*_messages(recent), *_messages(current)]
        first_body = body[:1]
        pinned = self._length(system)
        # Without a system message some templates put a text of their own before the first one.
        own = 0
        if not system and first_body:
            own = max(0, self._length(first_body) - self._counter.count(first_body[0]))
        before_current = self._length([*system, *_messages(recent)]) if recent else pinned + own
        whole = self._length([*system, *body])
        return {
            Tier.TEMPLATE: own + len(rendered.token_ids) - whole,
            Tier.PINNED: pinned,
            Tier.RECENT: before_current - pinned - own,
            Tier.CURRENT: whole - before_current if body else 0,
        }

    def _overflow(
        self, system: Sequence[Message], current: Sequence[Turn], core: RenderedChat
    ) -> ContextOverflowError:
        tiers = freeze(self._tiers(system, (), current, core))
        return ContextOverflowError(
            {str(tier): num for tier, num in tiers.items()},
            context=self._budget.context,
            reply=self._budget.reply,
        )

    def _records(
        self, view: BranchView, layout: Sequence[Span], room: int
    ) -> tuple[TruncationRecord, ...]:
        """Name what this prompt leaves out and no earlier one of this branch did."""
        loaded = {s.position: s.message for turn in view.turns for s in turn.messages}
        records = []
        for span in subtract(hidden(layout), view.recorded):
            # A run that was never read is not counted: reading a whole history to log that it
            # is not shown would make the first prompt of a long session as slow as it is long.
            positions = range(span.first, span.last + 1)
            is_read = all(position in loaded for position in positions)
            tokens = (self._counter.count(loaded[position]) for position in positions)
            records.append(
                TruncationRecord(
                    branch_id=view.branch_id,
                    first=span.first,
                    last=span.last,
                    tier=Tier.RECENT,
                    rule=Rule.NOT_INHERITED if span.last <= view.inherited else Rule.WINDOW,
                    num_tokens=sum(tokens) if is_read else None,
                    room=room,
                    destination="store",
                )
            )
        return tuple(records)


def _layout(view: BranchView, recent: Sequence[Turn], current: Sequence[Turn]) -> tuple[Span, ...]:
    kept = [(s.position, Tier.RECENT) for turn in recent for s in turn.messages]
    kept += [(s.position, Tier.CURRENT) for turn in current for s in turn.messages]
    return with_gaps(shown_spans(kept), view.head, cut=view.inherited)
