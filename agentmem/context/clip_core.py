"""Clip the core of the current turn where it would not fit after the pins alone."""

from collections.abc import Sequence
from dataclasses import replace

from agentmem.config import Budget
from agentmem.context.clip_text import MAX_CHARS_PER_TOKEN, most_kept
from agentmem.context.draft import Draft
from agentmem.context.prompt_messages import has_thought, num_clippable, show_clipped
from agentmem.context.render import Renderer
from agentmem.context.step_inputs import StepInputs
from agentmem.errors import ContextOverflowError
from agentmem.types import DisplayForm, Role, freeze


def clip_core(draft: Draft, inputs: StepInputs) -> Draft:
    """
    Clip the core of the current turn if it does not fit after the pins.

    Raises:
        ContextOverflowError: it does not fit and may not be clipped, or not enough.
    """
    return inputs.recalling(_clipped(draft, inputs.renderer, inputs.budget))


def _clipped(draft: Draft, renderer: Renderer, budget: Budget) -> Draft:
    """
    Return *draft* with its core clipped as little as necessary.

    Messages clipped by an earlier prompt are clipped further first, with a margin, so that a tool
    loop does not clip them again with each call. Then results and answers are clipped before the
    user's message, each to the same maximum length.

    Raises:
        ContextOverflowError: it does not fit and may not be clipped, or not enough.
    """
    if renderer.size(draft) <= budget.prompt:
        return draft
    bare = replace(draft, summaries=(), older=(), rounds=(), hits=(), groups=())
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
