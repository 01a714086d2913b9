"""
Fit a draft into the budget, dropping the least important parts first.

Discardable messages are dropped first, then older turns, then finished calls of the current turn,
then recalled messages, then summaries; the core of the current turn is clipped last, and pins are
never dropped.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from typing import Final

from agentmem.config import Budget
from agentmem.context.clip import MAX_CHARS_PER_TOKEN, most_kept
from agentmem.context.draft import SUMMARY_HEADING, Draft
from agentmem.context.packing import pack
from agentmem.context.pieces import (
    STUB_LINE,
    Shown,
    has_thought,
    num_clippable,
    show_clipped,
    show_stub,
)
from agentmem.context.policy import Policy
from agentmem.context.render import Renderer
from agentmem.context.turns import untold
from agentmem.context.window import keep_from
from agentmem.errors import ConfigError, ContextOverflowError
from agentmem.protocols import Discardable, Hit
from agentmem.types import DisplayForm, Role, StoredMessage, Summary, freeze

MAX_LEFT: Final = 32
"""Maximum messages that were dropped without a summary and are included in a later one."""

_UNUSED: Final = 0.02
"""Minimum free share of the prompt for which a new window is refilled, at the cost of a summary."""

_EXPECTED_GROWTH: Final = 0.3
"""
Share of a new summary's maximum that is reserved below the low-water mark.

On four conversations of LoCoMo 0 gives a prefix share of .9295 to .942 with .760 to .768 of the
budget used, 0.3 one of .9344 to .9418 with .755 to .765, and 1.0 one of .9342 to .9417 with .747
to .754.
"""

Room = Callable[[], int]
"""Callback with the tokens of a window."""


def fit_core(draft: Draft, renderer: Renderer, budget: Budget) -> Draft:
    """
    Clip the core of the current turn if it does not fit after the pins.

    Messages clipped by an earlier prompt are clipped further first, with a margin, so that a tool
    loop does not clip them again with each call. Then results and answers are clipped before the
    user's message, each to the same maximum length.

    Raises:
        ContextOverflowError: it does not fit and may not be clipped, or not enough.
    """
    if renderer.size(draft) <= budget.prompt:
        return draft
    bare = replace(draft, summaries=(), older=(), rounds=(), hits=(), blocks=())
    clipped = [i for i, one in enumerate(bare.core) if one.form is DisplayForm.CLIPPED]
    if (size := renderer.size(bare)) <= budget.prompt and not clipped:
        return draft
    if not budget.clip:
        raise _overflow(bare, renderer, budget)
    users = [i for i, one in enumerate(bare.core) if one.message.role is Role.USER]
    told = [i for i, one in enumerate(bare.core) if not one.is_silent]
    others = [i for i in told if i not in users]
    free = budget.prompt - sum(map(renderer.count, bare.system))
    margin = int((1 - budget.low_water) * free / 2)
    if size <= budget.prompt:
        # The window slides now. A core clipped to the last token leaves room for one round only,
        # so that the window would slide again with the next.
        wanted = min(size, budget.prompt - margin)
        return replace(draft, core=_clip(bare, clipped, renderer, wanted).core)
    bare = _without_thoughts(bare, renderer)
    if renderer.size(bare) <= budget.prompt:
        return replace(draft, core=bare.core)
    for indices, limit in (
        (clipped, budget.prompt - margin),
        (others, budget.prompt),
        (users, budget.prompt),
    ):
        bare = _clip(bare, indices, renderer, limit)
        if renderer.size(bare) <= budget.prompt:
            return replace(draft, core=bare.core)
    raise _overflow(replace(bare, core=draft.core), renderer, budget)


def _without_thoughts(bare: Draft, renderer: Renderer) -> Draft:
    """Remove reasoning from the core, where the template shows it."""
    core = tuple(
        show_clipped(one.stored, num_clippable(one.stored.message))
        if one.form is DisplayForm.FULL and has_thought(one.message)
        else one
        for one in bare.core
    )
    without = replace(bare, core=core)
    return without if renderer.size(without) < renderer.size(bare) else bare


def _clip(bare: Draft, indices: Sequence[int], renderer: Renderer, limit: int) -> Draft:
    """Clip these messages of the core as little as necessary, or as much as possible."""

    def clipped(kept: int) -> Draft:
        core = list(bare.core)
        for index in indices:
            was = core[index]
            most = kept if was.kept_chars is None else min(kept, was.kept_chars)
            if most < num_clippable(was.stored.message):
                now = show_clipped(was.stored, most)
                # The marker may be longer than the clipped text.
                if renderer.count(now.message) < renderer.count(was.message):
                    core[index] = now
        return replace(bare, core=tuple(core))

    sizes = [num_clippable(bare.core[index].stored.message) for index in indices]
    size = min(max(sizes, default=0), MAX_CHARS_PER_TOKEN * limit)
    if size == 0:
        return bare
    kept = most_kept(size, lambda kept: renderer.size(clipped(kept)) <= limit)
    return clipped(kept or 0)


def _overflow(bare: Draft, renderer: Renderer, budget: Budget) -> ContextOverflowError:
    tiers = freeze(renderer.tiers(bare, renderer.size(bare)))
    return ContextOverflowError(
        {str(tier): num for tier, num in tiers.items()},
        context=budget.context,
        reply=budget.reply,
    )


def fit_hits(
    draft: Draft,
    hits: tuple[Hit, ...],
    renderer: Renderer,
    budget: Budget,
    most: int | None = None,
) -> tuple[Hit, ...]:
    """
    Select hits in order of score, skipping those that do not fit.

    Messages in the prompt, and duplicates of them, are omitted. A turn with a block gets no second
    one, which would change the prefix of the prompt.

    Args:
        draft: the prompt with its window; the same window gives the same hits.
        hits: best first, deduplicated.
        renderer: counts tokens.
        budget: the share of recalled messages.
        most: maximum number of *hits* outside of the window to consider. A list truncated for
            another window then gives the same result.
    """
    if not hits or draft.anchor in {block.anchor for block in draft.blocks}:
        return ()
    line = renderer.line
    ids = {piece.stored.id for piece in draft.window}
    lines = {line(piece.stored.message) for piece in draft.window if piece.form is DisplayForm.FULL}
    outside = [
        hit for hit in hits if hit.stored.id not in ids and line(hit.stored.message) not in lines
    ]
    kept = {line(hit.stored.message) for block in draft.blocks for hit in block.hits}
    best = [
        hit
        for hit in outside[:most]
        if line(hit.stored.message) not in kept and (hit.is_local or not draft.keep_recalled)
    ]
    room = budget.retrieved_tokens - renderer.count_blocks(draft.blocks)
    return pack(best, room, renderer)


class Slide(Enum):
    """Parameters of a slide of the window."""

    FILL = "a new window: filled, as far as it goes"
    AS_NEEDED = "an old window: to its low-water mark in one step, if it is full"
    NOW = "to its low-water mark, full or not"

    @classmethod
    def of(cls, *, is_new: bool, must: bool) -> "Slide":
        if must:
            return cls.NOW
        return cls.FILL if is_new else cls.AS_NEEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitting:
    """
    Selects recalled messages, and the units of the window that are kept.

    The recalled messages are a function of the remaining window, so assembling again gives the same
    prompt.

    Args:
        found: candidates to recall, best first.
        most: maximum number of them outside of the window to consider.
    """

    renderer: Renderer
    budget: Budget
    policy: Policy
    slide: Slide
    found: tuple[Hit, ...] = ()
    most: int | None = None

    def fit(self, draft: Draft) -> tuple[Draft, Room]:
        """Slide the window of *draft* if necessary; return the draft and the window's room."""
        fitted = self._fit(draft)

        @cache
        def room() -> int:
            fixed = replace(draft, older=(), rounds=(), hits=fitted.hits)
            return max(0, self.budget.prompt - self.renderer.size(fixed))

        return fitted, room

    def _fit(self, draft: Draft) -> Draft:
        if self.slide is not Slide.NOW:
            full = self._recalling(draft)
            if self._fits(full):
                return self._without_beginning(full)
        stubbed = _stub(draft, self.policy)
        if self.slide is not Slide.NOW:
            full = self._recalling(stubbed)
            if self.renderer.size(full) <= self.budget.prompt - self._margin(full):
                return full
        return self._slid(stubbed)

    def _recalling(self, draft: Draft) -> Draft:
        """Return *draft* with the recalled messages for its window."""
        hits = fit_hits(draft, self.found, self.renderer, self.budget, self.most)
        return draft if hits == draft.hits else replace(draft, hits=hits)

    def _fits(self, draft: Draft) -> bool:
        return self.renderer.size(draft) <= self.budget.prompt

    def _slid(self, draft: Draft) -> Draft:
        """Drop whole units until the window has the target size of the slide."""
        draft = _within_share(draft, self.renderer, self.budget)
        units = (*draft.older, *draft.rounds)
        sizes = [self.renderer.count_unit(unit, draft) for unit in units]
        first = self._first_to_keep(draft, sizes)
        slid = self._recalling(_drop(draft, first))
        # Units are selected by single counts, then counted as a whole; where a template is not
        # additive, or a summary exceeds its reserve, more units are dropped.
        while not self._fits(slid) and first < len(sizes):
            first += 1
            slid = self._recalling(_drop(draft, first))
        if self.slide is Slide.FILL and self._fits(slid):
            slid = self._widened(draft, slid, sizes, first)
        return self._without_overflow(slid)

    def _first_to_keep(self, draft: Draft, sizes: Sequence[int]) -> int:
        """
        Return the index of the first kept unit, by the counts of single units.

        Dropped units may be recalled, which takes room in turn: so repeat until no more units are
        dropped.
        """
        first = 0
        while True:
            left = self._recalling(_without(draft, first))
            keep = keep_from(sizes, self._limit(left, sum(sizes[:first])))
            if keep <= first:
                return first
            first = keep

    def _limit(self, draft: Draft, num_leaving: int) -> int:
        """Return the maximum tokens of the units after *num_leaving* tokens of them are dropped."""
        core = self.renderer.count_unit(draft.core, draft)
        room = self._room(draft)
        growth = _summary_growth(draft, self.renderer, self.budget, num_leaving)
        if self.slide is Slide.FILL:
            return room - core - growth
        low = int(self.budget.low_water * (room - _EXPECTED_GROWTH * growth))
        return min(low, room - growth - self._margin(draft)) - core

    def _room(self, draft: Draft) -> int:
        """Return the room of the window, its core included, after pins, summaries and hits."""
        fixed = self.renderer.size(replace(draft, older=(), rounds=()))
        return self.budget.prompt - fixed + self.renderer.count_unit(draft.core, draft)

    def _margin(self, draft: Draft) -> int:
        """
        Return the minimum free tokens after a slide, if enough units can be dropped.

        Half of the tokens between the low-water mark and a full window. A prompt that barely fits
        after stubs or a slide would slide with the next turn, and invalidate its prefix twice.
        """
        return int((1 - self.budget.low_water) * self._room(draft) / 2)

    def _widened(self, draft: Draft, slid: Draft, sizes: Sequence[int], first: int) -> Draft:
        """Refill a new window where its summary is smaller than its reserve."""
        free = self.budget.prompt - self.renderer.size(slid)
        if free <= _UNUSED * self.budget.prompt:
            return slid
        wider = keep_from(sizes, sum(sizes[first:]) + free)
        if wider >= first:
            return slid
        widened = self._recalling(_drop(draft, wider))
        return widened if self._fits(widened) else slid

    def _without_overflow(self, draft: Draft) -> Draft:
        """
        Drop the weakest hits if no units are left, then kept recalled messages, then summaries.

        Hits are added again into the room freed by a summary: the next prompt would show them.
        """
        if self._fits(draft):
            return draft
        bare = replace(draft, hits=())
        if not self._fits(bare):
            # No older turn is left, so this is at most the block of the current turn.
            bare = replace(bare, blocks=())
        while not self._fits(bare) and bare.summaries:
            bare = replace(bare, summaries=bare.summaries[1:])
        full = self._recalling(bare)
        while full.hits and not self._fits(full):
            full = replace(full, hits=full.hits[:-1])
        return full

    def _without_beginning(self, draft: Draft) -> Draft:
        """Drop the units up to `leave_to`, if any."""
        units = (*draft.older, *draft.rounds)
        num_leaving = sum(unit[-1].position <= draft.leave_to for unit in units)
        if num_leaving == 0:
            return draft
        slid = _drop(draft, num_leaving)
        return slid if self._fits(slid) else draft


def _within_share(draft: Draft, renderer: Renderer, budget: Budget) -> Draft:
    """Drop the oldest summaries while all exceed their share: pins may have grown."""
    summaries = draft.summaries
    while summaries and _taken(summaries, renderer) > budget.summary_tokens:
        summaries = summaries[1:]
    return draft if summaries == draft.summaries else replace(draft, summaries=summaries)


def _taken(summaries: Sequence[Summary], renderer: Renderer) -> int:
    return sum(renderer.count_text(summary.text) for summary in summaries)


def _stub(draft: Draft, policy: Policy) -> Draft:
    if policy.discardable is None:
        return draft
    older = []
    for index, unit in enumerate(draft.older):
        age = len(draft.older) - index
        shown = (
            show_stub(one.stored, STUB_LINE.format(position=one.position))
            if _may_stub(one) and _is_discarded(one.stored, age, policy.discardable)
            else one
            for one in unit
        )
        older.append(tuple(shown))
    return replace(draft, older=tuple(older))


def _is_discarded(stored: StoredMessage, age: int, discardable: Discardable) -> bool:
    try:
        return bool(discardable.discards(stored, age=age))
    except Exception as error:
        raise ConfigError(
            f"the policy's discardable failed on message {stored.position}: "
            f"{type(error).__name__}: {error}"
        ) from error


def _may_stub(shown: Shown) -> bool:
    """Return whether a stub would be shorter; a user's message is never discarded."""
    line = STUB_LINE.format(position=shown.position)
    is_user = shown.message.role is Role.USER
    is_cut = shown.form is DisplayForm.STUB or shown.is_silent
    return not is_cut and not is_user and len(shown.message.text) > len(line)


def _summary_growth(draft: Draft, renderer: Renderer, budget: Budget, num_leaving: int) -> int:
    """Return the maximum size of a summary of *num_leaving* tokens, heading included."""
    if draft.compactor is None:
        return 0
    free = max(0, budget.summary_tokens - _taken(draft.summaries, renderer))
    growth = min(free, draft.compactor.most_tokens(num_leaving))
    is_first = growth > 0 and not draft.summaries
    return growth + (renderer.count_text(SUMMARY_HEADING) if is_first else 0)


def _without(draft: Draft, first: int) -> Draft:
    """Return *draft* without its *first* units, which are not summarized."""
    num_older = min(first, len(draft.older))
    kept = replace(draft, older=draft.older[num_older:], rounds=draft.rounds[first - num_older :])
    return kept.with_blocks_in_place()


def _drop(draft: Draft, first: int) -> Draft:
    """Drop the *first* units and compact them."""
    kept = _without(draft, first)
    if draft.compactor is None or first == 0:
        return kept
    summaries = draft.summaries
    for run in _runs(draft, kept):
        summaries = draft.compactor.compact(draft.branch_id, summaries, run)
    return replace(kept, summaries=summaries)


def _runs(draft: Draft, kept: Draft) -> Iterator[list[StoredMessage]]:
    """
    Return the messages of *draft* that are not in *kept*, as contiguous runs to summarize.

    Loaded messages that were dropped earlier without a summary are included. Unread messages
    separate two runs: a summary must not cover messages that its author has not seen.
    """
    shown = {piece.position for piece in draft.window}
    leaving = shown - {piece.position for piece in kept.window}
    last = max(leaving, default=0)
    left = [p for p in sorted(draft.loaded) if p < last and p not in shown and not draft.sums_up(p)]
    begin = end = 0
    for position in sorted(leaving.union(left[-MAX_LEFT:])):
        if begin and not _is_known(draft, end + 1, position):
            yield _between(draft, begin, end)
            begin = 0
        begin, end = begin or position, position
    if begin:
        yield _between(draft, begin, end)


def _is_known(draft: Draft, position: int, end: int) -> bool:
    """Whether all messages from *position* to before *end* are loaded or summarized."""
    while position < end and position in draft.loaded:
        position += 1
    if position >= end:
        return True
    covering = [s.last for s in draft.summaries if s.first <= position <= s.last]
    return bool(covering) and _is_known(draft, max(covering) + 1, end)


def _between(draft: Draft, first: int, last: int) -> list[StoredMessage]:
    run = [stored for p, stored in sorted(draft.loaded.items()) if first <= p <= last]
    return [untold(stored) if stored.position in draft.replaced else stored for stored in run]
