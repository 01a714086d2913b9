"""
Slide the window: drop whole units, oldest first, and compact them into a summary.

Units are older turns, then finished calls of the current turn.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from agentmem.context.draft import SUMMARY_HEADING, Draft
from agentmem.context.drop_summaries import summaries_size, within_share
from agentmem.context.step_inputs import Slide, StepInputs
from agentmem.context.turns import untold
from agentmem.types import StoredMessage

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


def slide_window(draft: Draft, inputs: StepInputs) -> Draft:
    """Drop units, older turns first and then rounds, to the target size of the slide."""
    draft = within_share(draft, inputs)
    units = (*draft.older, *draft.rounds)
    sizes = [inputs.renderer.count_unit(unit, draft) for unit in units]
    first = _first_to_keep(inputs, draft, sizes)
    slid = inputs.recalling(drop_units(draft, first))
    # Units are selected by single counts, then counted as a whole; where a template is not
    # additive, or a summary exceeds its reserve, more units are dropped.
    while not inputs.fits(slid) and first < len(sizes):
        first += 1
        slid = inputs.recalling(drop_units(draft, first))
    if inputs.slide is Slide.FILL and inputs.fits(slid):
        slid = _widened(inputs, draft, slid, sizes, first)
    return slid


def _first_to_keep(inputs: StepInputs, draft: Draft, sizes: Sequence[int]) -> int:
    """
    Return the index of the first kept unit, by the counts of single units.

    Dropped units may be recalled, which takes room in turn: so repeat until no more units are
    dropped.
    """
    first = 0
    while True:
        left = inputs.recalling(_without(draft, first))
        keep = keep_from(sizes, _limit(inputs, left, sum(sizes[:first])))
        if keep <= first:
            return first
        first = keep


def _limit(inputs: StepInputs, draft: Draft, num_leaving: int) -> int:
    """Return the maximum tokens of the units after *num_leaving* tokens of them are dropped."""
    core = inputs.renderer.count_unit(draft.core, draft)
    room = inputs.room(draft)
    growth = summary_growth(draft, inputs, num_leaving)
    if inputs.slide is Slide.FILL:
        return room - core - growth
    low = int(inputs.budget.low_water * (room - _EXPECTED_GROWTH * growth))
    return min(low, room - growth - inputs.margin(draft)) - core


def _widened(
    inputs: StepInputs, draft: Draft, slid: Draft, sizes: Sequence[int], first: int
) -> Draft:
    """Refill a new window where its summary is smaller than its reserve."""
    free = inputs.budget.prompt - inputs.renderer.size(slid)
    if free <= _UNUSED * inputs.budget.prompt:
        return slid
    wider = keep_from(sizes, sum(sizes[first:]) + free)
    if wider >= first:
        return slid
    widened = inputs.recalling(drop_units(draft, wider))
    return widened if inputs.fits(widened) else slid


def keep_from(sizes: Sequence[int], limit: int) -> int:
    """
    Return the index of the first kept unit, so that all from there on take at most *limit*.

    It goes back from the newest and stops at the first that does not fit, even if an older, shorter
    one would: a gap in the middle of a conversation is invisible to the model, while a missing
    beginning is the purpose of the summary tier.
    """
    first = len(sizes)
    left = limit
    while first > 0 and sizes[first - 1] <= left:
        first -= 1
        left -= sizes[first]
    return first


def summary_growth(draft: Draft, inputs: StepInputs, num_leaving: int) -> int:
    """Return the maximum size of a summary of *num_leaving* tokens, heading included."""
    if draft.compactor is None:
        return 0
    free = max(0, inputs.budget.summary_tokens - summaries_size(draft.summaries, inputs.renderer))
    growth = min(free, draft.compactor.most_tokens(num_leaving))
    is_first = growth > 0 and not draft.summaries
    return growth + (inputs.renderer.count_text(SUMMARY_HEADING) if is_first else 0)


def _without(draft: Draft, first: int) -> Draft:
    """Return *draft* without its *first* units, which are not summarized."""
    num_older = min(first, len(draft.older))
    kept = replace(draft, older=draft.older[num_older:], rounds=draft.rounds[first - num_older :])
    return kept.with_groups_in_place()


def drop_units(draft: Draft, first: int) -> Draft:
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
    unsaid = draft.replaced | draft.superseded
    return [untold(stored) if stored.position in unsaid else stored for stored in run]
