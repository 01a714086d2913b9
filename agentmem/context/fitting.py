"""
Makes a draft fit, in the order of what hurts least.

Discardable messages give way first, then older turns, then finished calls of the current turn,
then what was recalled, then summaries; the core of the current turn is clipped last, and pins
never give way.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from functools import cache

from agentmem.config import Budget
from agentmem.context.clip import MAX_CHARS_PER_TOKEN, most_kept
from agentmem.context.draft import Draft
from agentmem.context.packing import pack
from agentmem.context.pieces import STUB_LINE, Shown, show_clipped, show_stub
from agentmem.context.policy import Policy
from agentmem.context.render import Renderer
from agentmem.context.window import keep_from
from agentmem.errors import ConfigError, ContextOverflowError
from agentmem.protocols import Discardable, Hit
from agentmem.types import Form, Role, StoredMessage, freeze

Room = Callable[[], int]
"""Counts the tokens that a window had, for who has something to say of it."""


def fit_core(draft: Draft, renderer: Renderer, budget: Budget) -> Draft:
    """
    Clip the core of the current turn if it does not fit behind the pins.

    Results and answers are clipped before the user's own message, the longest first.

    Raises:
        ContextOverflowError: it does not fit and may not be clipped, or not enough.
    """
    if renderer.size(draft) <= budget.prompt:
        return draft
    bare = replace(draft, summaries=(), older=(), rounds=(), hits=(), blocks=())
    if renderer.size(bare) <= budget.prompt:
        return draft
    if not budget.clip:
        raise _overflow(bare, renderer, budget)
    order = sorted(
        range(len(bare.core)),
        key=lambda i: (
            bare.core[i].message.role is Role.USER,
            -renderer.count(bare.core[i].message),
        ),
    )
    for index in order:
        bare = _clip_one(bare, index, renderer, budget)
        if renderer.size(bare) <= budget.prompt:
            return replace(draft, core=bare.core)
    raise _overflow(replace(bare, core=draft.core), renderer, budget)


def _clip_one(bare: Draft, index: int, renderer: Renderer, budget: Budget) -> Draft:
    """Clip one message of the core as little as makes the draft fit, else as much as can be."""
    stored = bare.core[index].stored

    def clipped(kept: int) -> Draft:
        core = list(bare.core)
        core[index] = show_clipped(stored, kept)
        return replace(bare, core=tuple(core))

    size = min(len(stored.message.text) - 1, MAX_CHARS_PER_TOKEN * budget.prompt)
    if size < 0:
        return bare
    kept = most_kept(size, lambda kept: renderer.size(clipped(kept)) <= budget.prompt)
    smallest = clipped(kept or 0)
    return smallest if renderer.size(smallest) < renderer.size(bare) else bare


def _overflow(bare: Draft, renderer: Renderer, budget: Budget) -> ContextOverflowError:
    tiers = freeze(renderer.tiers(bare, renderer.size(bare)))
    return ContextOverflowError(
        {str(tier): num for tier, num in tiers.items()},
        context=budget.context,
        reply=budget.reply,
    )


def fit_hits(draft: Draft, hits: tuple[Hit, ...], renderer: Renderer, budget: Budget) -> Draft:
    """
    Take hits in the order of their scores, skipping those that do not fit.

    What the prompt shows already is left out: nothing stands in it twice. A turn that has its
    block already gets no second one, which would change what the model has seen of it.
    """
    if draft.anchor in {block.anchor for block in draft.blocks}:
        return draft
    seen = {shown.stored.id for shown in draft.window}
    seen |= {hit.stored.id for block in draft.blocks for hit in block.hits}
    room = budget.retrieved_tokens - renderer.count_blocks(draft.blocks)
    candidates = {
        hit.stored.id: hit
        for hit in sorted(hits, key=lambda one: (one.score, -one.stored.id))
        if hit.stored.id not in seen
        and not hit.stored.message.is_blank
        and (hit.is_local or not draft.keep_recalled)
    }
    # The last one of a message is its best.
    best = sorted(candidates.values(), key=lambda one: (-one.score, one.stored.id))
    return replace(draft, hits=pack(best, room, renderer))


class Slide(Enum):
    """How the window moves."""

    FILL = "a new window: filled, as far as it goes"
    AS_NEEDED = "an old window: to its low-water mark in one step, if it is full"
    NOW = "to its low-water mark, full or not"

    @classmethod
    def of(cls, *, is_new: bool, must: bool) -> "Slide":
        if must:
            return cls.NOW
        return cls.FILL if is_new else cls.AS_NEEDED


def slide_window(
    draft: Draft, renderer: Renderer, budget: Budget, policy: Policy, slide: Slide
) -> tuple[Draft, Room]:
    """Let the window slide as *slide* says; give the draft and the room that the window had."""

    @cache
    def room() -> int:
        fixed = replace(draft, older=(), rounds=())
        return max(0, budget.prompt - renderer.size(fixed))

    if renderer.size(draft) <= budget.prompt and slide is not Slide.NOW:
        return _without_beginning(draft, renderer, budget), room
    stubbed = _stub(draft, policy)
    if renderer.size(stubbed) <= _halfway(budget) and slide is not Slide.NOW:
        return stubbed, room
    return _slid(stubbed, renderer, budget, slide), room


def _slid(draft: Draft, renderer: Renderer, budget: Budget, slide: Slide) -> Draft:
    """Let whole units go until the rest is as small as *slide* says."""
    room = budget.prompt - renderer.size(replace(draft, older=(), rounds=()))
    sizes = [renderer.count_unit(unit, draft) for unit in (*draft.older, *draft.rounds)]
    limit = room - _summary_growth(draft, renderer, budget)
    if slide is not Slide.FILL:
        core = renderer.count_unit(draft.core, draft)
        limit = min(limit, int(budget.low_water * (room + core)) - core)
    first = keep_from(sizes, limit)
    slid = _drop(draft, first)
    # What was chosen by single counts is counted as a whole; where a template is not the sum of
    # its messages, or a summary took more than the units it replaced, the window gives way.
    while renderer.size(slid) > budget.prompt and first < len(sizes):
        first += 1
        slid = _drop(draft, first)
    while renderer.size(slid) > budget.prompt and (slid.all_hits or slid.summaries):
        slid = _without_one(slid)
    return slid


def _without_beginning(draft: Draft, renderer: Renderer, budget: Budget) -> Draft:
    """Let the units go that are to leave, if there are any."""
    units = (*draft.older, *draft.rounds)
    num_leaving = sum(unit[-1].position <= draft.leave_to for unit in units)
    if num_leaving == 0:
        return draft
    slid = _drop(draft, num_leaving)
    return slid if renderer.size(slid) <= budget.prompt else draft


def _without_one(draft: Draft) -> Draft:
    """Let the weakest hit go, then what was recalled earlier, then the oldest summary."""
    if draft.hits:
        return replace(draft, hits=draft.hits[:-1])
    if draft.blocks:
        return replace(draft, blocks=draft.blocks[1:])
    return replace(draft, summaries=draft.summaries[1:])


def _halfway(budget: Budget) -> int:
    """
    Give the size up to which stubs alone are enough.

    A prompt that stubs have only just made fit would slide with the next turn, and break its
    prefix twice.
    """
    return int(budget.prompt * (1 + budget.low_water) / 2)


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
    """Tell whether a stub would be shorter; a user's message is never discarded."""
    line = STUB_LINE.format(position=shown.position)
    is_user = shown.message.role is Role.USER
    return shown.form is not Form.STUB and not is_user and len(shown.message.text) > len(line)


def _summary_growth(draft: Draft, renderer: Renderer, budget: Budget) -> int:
    """Keep room for the summary that a slide will make."""
    if draft.folder is None:
        return 0
    taken = sum(renderer.count_text(summary.text) for summary in draft.summaries)
    return max(0, budget.summary_tokens - taken)


def _drop(draft: Draft, first: int) -> Draft:
    """Let the *first* units go and fold them."""
    num_older = min(first, len(draft.older))
    num_rounds = first - num_older
    summaries = draft.summaries
    for leaving in (draft.older[:num_older], draft.rounds[:num_rounds]):
        run = _run([shown for unit in leaving for shown in unit], draft)
        if run and draft.folder is not None:
            summaries = draft.folder.fold(draft.branch_id, summaries, run)
    kept = replace(
        draft,
        older=draft.older[num_older:],
        rounds=draft.rounds[num_rounds:],
        summaries=summaries,
    )
    return kept.with_blocks_in_place()


def _run(leaving: list[Shown], draft: Draft) -> list[StoredMessage]:
    """
    Give the whole run of messages that a summary of *leaving* would cover.

    Empty where something between them was never read, as between promoted results: a summary
    must not cover what its writer has not seen.
    """
    if not leaving:
        return []
    positions = range(leaving[0].position, leaving[-1].position + 1)
    run = [draft.loaded[position] for position in positions if position in draft.loaded]
    return run if len(run) == len(positions) else []
