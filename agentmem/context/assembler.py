"""
Assembles prompts from plain values.

Pins, summaries, the recent window, recalled messages, the current turn: from most to least stable.
It decides and records; it has no I/O.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from agentmem.config import Budget
from agentmem.context.compaction import SummaryCompactor
from agentmem.context.data_url_placeholders import with_stand_ins
from agentmem.context.draft import Draft, RecalledGroup, pinned_message
from agentmem.context.fit_prompt import CountRoom, fit_prompt
from agentmem.context.layout import Accounting, lay_out
from agentmem.context.omit_deleted import unneeded
from agentmem.context.pack_hits import distinct
from agentmem.context.policy import Policy
from agentmem.context.prompt_messages import show, shown_turns, split_turn
from agentmem.context.recall import recalled_hit
from agentmem.context.render import Renderer
from agentmem.context.reuse import PreviousPrompt, find_reuse, pin_versions
from agentmem.context.step_inputs import Slide, StepInputs
from agentmem.context.turns import replaced, untold
from agentmem.protocols import Hit, TokenCounter, default_system
from agentmem.types import (
    BranchId,
    Origin,
    Pin,
    PrefixBreak,
    Prompt,
    Reuse,
    Role,
    Span,
    StoredMessage,
    Summary,
    Tier,
    Turn,
    freeze,
)

_USEFUL_SHARE: Final = 4
"""Divisor of the prompt for the minimum useful window, ..."""

_USEFUL_TOKENS: Final = 1024
"""... or its size in tokens, if that is less."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchView:
    """
    The assembler's input of a branch.

    Args:
        head: position of the newest message.
        turns: the end of the branch, oldest first; at least from the start of the previous window.
        before: the previous prompt, which this one extends; for a subtask's first one its parent's.
            None for a new window.
        window_reset_reason: why the window is new, if it is.
        recorded: the last layout in the log of this branch; empty for a new log.
        summaries: those of *before*.
        inherited: positions up to this one are a parent's, not shown unless in *turns*.
        hits: candidates to recall for this prompt, best first.
        max_hits: maximum number of *hits* outside of the window to consider; None for all.
        groups: messages recalled for earlier prompts that are kept in place.
        must_slide: slide the window to its low-water mark even if it still fits.
        left: dropped messages that are in no summary, for the next summary.
        parent: the inputs of *summaries*, if these are new and not in the log.
        leave_to: drop messages up to this position, and no more, if the rest fits; 0 drops none.
        superseded: by position of each message whose statement a later one replaced, the latter's.
    """

    branch_id: BranchId
    head: int
    pins: tuple[Pin, ...]
    turns: tuple[Turn, ...]
    before: PreviousPrompt | None = None
    window_reset_reason: PrefixBreak = PrefixBreak.FIRST
    recorded: tuple[Span, ...] = ()
    summaries: tuple[Summary, ...] = ()
    inherited: int = 0
    hits: tuple[Hit, ...] = ()
    max_hits: int | None = None
    groups: tuple[RecalledGroup, ...] = ()
    must_slide: bool = False
    left: tuple[StoredMessage, ...] = ()
    parent: "BranchView | None" = None
    leave_to: int = 0
    superseded: Mapping[int, int] = field(default_factory=dict)

    @property
    def says_anything(self) -> bool:
        """Whether a prompt would show more than pins, which strict templates reject alone."""
        messages = [stored for turn in self.turns for stored in turn.messages]
        gone = replaced(messages) | self.unneeded
        told = (show(stored) for stored in messages if stored.position not in gone)
        return bool(self.summaries or self.hits) or not all(piece.is_silent for piece in told)

    @property
    def unneeded(self) -> frozenset[int]:
        """
        Positions of deleted messages that are omitted.

        Where the window has no other message, the tombstone of the last question is shown.
        """
        gone = unneeded(self.turns)
        positions = [stored.position for turn in self.turns for stored in turn.messages]
        if not positions or positions[0] <= self.inherited + 1 or not gone.issuperset(positions):
            return gone
        return gone - {self.turns[-1].first}

    @property
    def messages(self) -> list[StoredMessage]:
        """All loaded messages, by position."""
        shown = (stored for turn in self.turns for stored in turn.messages)
        every = {stored.position: stored for stored in (*self.left, *shown)}
        return [every[position] for position in sorted(every)]


class Assembler:
    """Assembles prompts with a token *counter*, within a *budget*, by a *policy*."""

    def __init__(self, counter: TokenCounter, budget: Budget, policy: Policy | None = None) -> None:
        self._counter = counter
        self._renderer = Renderer(counter)
        self._budget = budget
        self._policy = policy or Policy()

    def assemble(self, view: BranchView) -> Prompt:
        """
        Select, render and record the prompt of *view*.

        Raises:
            ContextOverflowError: pins and the core of the current turn exceed the budget, and the
                current turn may not be clipped or cannot be clipped enough.
        """
        self._renderer = Renderer(self._counter)
        view = replace(view, turns=with_stand_ins(view.turns))
        budget = self._budget_behind(view.pins)
        draft = self._start(view)
        # Messages after the snapshot are for the next prompt.
        found = [h for h in view.hits if not h.is_local or h.stored.position <= view.head]
        inputs = StepInputs(
            renderer=self._renderer,
            budget=budget,
            policy=self._policy,
            slide=Slide.of(is_new=view.before is None, must=view.must_slide),
            found=tuple(self._lines(found)),
            most=view.max_hits,
        )
        draft, room = fit_prompt(draft, inputs)
        return self._account(view, draft, room)

    def _lines(self, found: Sequence[Hit]) -> list[Hit]:
        """Return the deduplicated lines of *found*, best first."""
        said = (hit for hit in found if hit.text.strip())
        best_first = sorted(said, key=lambda hit: (-hit.score, hit.stored.id))
        return distinct(best_first, self._renderer.line)

    def _budget_behind(self, pins: Sequence[Pin]) -> Budget:
        """Return the budget with shares of the rest after *pins*."""
        return self._budget.behind(self._num_pinned(pins))

    def _num_pinned(self, pins: Sequence[Pin]) -> int:
        return sum(map(self._renderer.count, pinned_message(pins)))

    def _warnings(self, pins: Sequence[Pin]) -> tuple[str, ...]:
        """Return a warning where *pins* leave too little for a useful window."""
        num_pinned, all_of_it = self._num_pinned(pins), self._budget.prompt
        left = self._budget.left_by(num_pinned)
        if left >= min(all_of_it // _USEFUL_SHARE, _USEFUL_TOKENS):
            return ()
        said = (
            f"pins take {num_pinned} of {all_of_it} tokens of the prompt and leave {left} for the "
            "conversation, so little of it is shown: shorten them or take a larger context"
        )
        return (said,)

    def compactor(self, pins: Sequence[Pin]) -> SummaryCompactor | None:
        """Return the compactor of messages after *pins*; None without summaries."""
        summarizer = self._policy.summarizer
        max_tokens = self._budget_behind(pins).summary_tokens
        if summarizer is None or max_tokens == 0:
            return None
        return SummaryCompactor(summarizer, self._renderer.count_text, max_tokens)

    def _start(self, view: BranchView) -> Draft:
        """Begin with the messages of the previous prompt, and all new ones."""
        layout = view.before.layout if view.before is not None else ()
        messages = view.messages
        gone = replaced(messages)
        shown = shown_turns(view.turns, layout, gone, view.unneeded)
        rounds, core = split_turn(shown[-1]) if shown else ([], ())
        return Draft(
            branch_id=view.branch_id,
            pins=view.pins,
            summaries=view.summaries,
            older=tuple(tuple(turn) for turn in shown[:-1] if turn),
            rounds=tuple(rounds),
            core=core,
            loaded={stored.position: stored for stored in messages},
            compactor=self.compactor(view.pins),
            groups=view.groups,
            keep_recalled=self._policy.keep_recalled,
            leave_to=view.leave_to,
            replaced=gone,
            superseded=view.superseded.keys(),
        ).with_groups_in_place()

    def _account(self, view: BranchView, draft: Draft, room: CountRoom) -> Prompt:
        rendered = self._renderer.render(draft.messages)
        layout = lay_out(draft.shown(), draft.summaries, head=view.head, inherited=view.inherited)
        accounting = Accounting(
            branch_id=view.branch_id,
            layout=layout,
            recorded=view.recorded,
            summaries={summary.key for summary in view.summaries},
            inherited=view.inherited,
            loaded=draft.loaded,
            count=self._count_stored,
            room=room,
        )
        return Prompt(
            branch_id=view.branch_id,
            head=view.head,
            messages=draft.messages,
            text=rendered.text,
            token_ids=rendered.token_ids,
            tokens_by_tier=freeze(self._renderer.tiers(draft, len(rendered.token_ids))),
            layout=layout,
            truncations=accounting.records(),
            summaries=draft.summaries,
            pins=pin_versions(view.pins),
            recalled=tuple(map(recalled_hit, draft.hits)),
            reuse=self._reuse(view, draft, layout, rendered.token_ids),
            context=self._budget.context,
            reply=self._budget.reply,
            fingerprint=self._renderer.fingerprint,
            default_system=default_system(self._counter),
            warnings=(*self._warnings(view.pins), *_damage(draft.loaded.values())),
        )

    def _reuse(
        self, view: BranchView, draft: Draft, layout: Sequence[Span], token_ids: Sequence[int]
    ) -> Reuse:
        before = view.before
        if before is None:
            return Reuse(common_tokens=0, broken_by=view.window_reset_reason)

        goes_on = True

        def shared(num_shown: int | None, *, is_whole: bool = False) -> int:
            nonlocal goes_on
            if num_shown is None:
                return self._shared_head(before, draft, token_ids)
            transcript = draft.beginning(num_shown, is_whole=is_whole)
            goes_on = not is_whole or draft.begins_with(transcript)
            # The previous prompt ended with the generation prompt, usually the start of the next
            # message.
            return self._renderer.shared(token_ids, transcript, generate=is_whole)

        reuse = find_reuse(
            before,
            pins=pin_versions(view.pins),
            layout=layout,
            window=draft.told,
            shared=shared,
        )
        # The template's default system text is replaced by the first pin, and is back without pins.
        if bool(before.pins) != bool(view.pins) and default_system(self._counter) is not None:
            what = "replace" if view.pins else "no longer replace"
            detail = f"{reuse.detail}; pins {what} the template's default system text"
            reuse = replace(reuse, detail=detail)
        # It shows the same messages, but a result has replaced a synthetic one.
        return reuse if goes_on else replace(reuse, broken_by=PrefixBreak.RESULT)

    def _shared_head(self, before: PreviousPrompt, draft: Draft, token_ids: Sequence[int]) -> int:
        """Return the common prefix with *before*, which has other summaries or none."""
        if any(span.source is not None for span in before.layout):
            return self._renderer.shared(token_ids, draft.system_and_heading)
        # That one has its window where this one has its summaries.
        shown = (s.first for s in before.layout if s.tier in (Tier.RECENT, Tier.CURRENT))
        first = draft.loaded.get(next(shown, 0))
        begin = [*draft.system]
        if first is not None and first.message.role is Role.USER:
            begin.append(first.message)
        return self._renderer.shared(token_ids, begin)

    def _count_stored(self, stored: StoredMessage) -> int:
        return self._renderer.count(stored.message)


def summarize_all(assembler: Assembler, branch_id: BranchId, view: BranchView) -> Sequence[Summary]:
    """
    Summarize all that *view* shows or has summarized, as one summary of the branch *branch_id*.

    It reaches back to the first unread gap, such as before promoted messages of subtasks. Empty
    without messages to summarize or without a summarizer.
    """
    compactor = assembler.compactor(view.pins)
    if compactor is None:
        return ()
    messages = view.messages
    summaries = view.summaries
    if messages:
        known = {stored.position for stored in messages}
        known |= {p for s in summaries for p in range(s.first, s.last + 1)}
        start = messages[-1].position
        while start - 1 in known:
            start -= 1
        summaries = tuple(summary for summary in summaries if summary.last >= start)
        gone = replaced(messages) | view.superseded.keys()
        run = [untold(s) if s.position in gone else s for s in messages if s.position >= start]
        summaries = compactor.compact(branch_id, summaries, run, may_quote=True)
    # Unchanged ones are stored for this branch too: the other may never have logged them.
    return [replace(summary, branch_id=branch_id) for summary in summaries]


def _damage(messages: Iterable[StoredMessage]) -> Iterator[str]:
    """Return warnings about corrupt messages, which are replaced by placeholders."""
    for stored in messages:
        if stored.origin is Origin.DAMAGED:
            yield (
                f"message {stored.position} is damaged and cannot be read: restore the database, "
                f"or delete it with delete_message({stored.position})"
            )
