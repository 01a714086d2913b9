"""Fit a draft into the budget by steps, which drop the least important parts first."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Final

from agentmem.context.clip_core import clip_core
from agentmem.context.draft import Draft
from agentmem.context.drop_recalled import drop_hits, drop_recalled_groups
from agentmem.context.drop_summaries import drop_summaries
from agentmem.context.slide_window import drop_units, slide_window
from agentmem.context.step_inputs import Slide, StepInputs
from agentmem.context.stub_discardable import stub_discardable

CountRoom = Callable[[], int]
"""Callback with the tokens of a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """
    One way to shorten a prompt, and the condition that makes further steps unnecessary.

    Args:
        shorten: returns a shorter draft.
        margin: whether as many tokens must stay free as after a slide.
        can_spare_slide: whether the window need not slide if the prompt fits after it.
    """

    shorten: Callable[[Draft, StepInputs], Draft]
    margin: bool = False
    can_spare_slide: bool = False

    def is_enough(self, draft: Draft, inputs: StepInputs) -> bool:
        """Whether *draft*, shortened by this step, needs no further one."""
        if self.can_spare_slide and inputs.slide is Slide.NOW:
            return False
        return inputs.fits_with_margin(draft) if self.margin else inputs.fits(draft)


STEPS: Final = (
    Step(shorten=clip_core, can_spare_slide=True),
    Step(shorten=stub_discardable, margin=True, can_spare_slide=True),
    Step(shorten=slide_window),
    Step(shorten=drop_hits),
    Step(shorten=drop_recalled_groups),
    Step(shorten=drop_summaries),
)
"""
The steps, run in this order until the prompt fits; pins are never shortened.

Clipping the core of the current turn is the last resort: it is clipped only if it does not fit
after the pins alone. It runs first, since the other steps count the clipped core.
"""


def fit_prompt(draft: Draft, inputs: StepInputs) -> tuple[Draft, CountRoom]:
    """
    Shorten *draft* by `STEPS` until it fits; return it with the room that its window had.

    Raises:
        ContextOverflowError: pins and the core of the current turn are over the budget, and the
            core may not be clipped or cannot be clipped enough.
    """
    fitted = _fitted(draft, inputs)

    @cache
    def room() -> int:
        fixed = replace(draft, older=(), rounds=(), core=fitted.core, hits=fitted.hits)
        return max(0, inputs.budget.prompt - inputs.renderer.size(fixed))

    return fitted, room


def _fitted(draft: Draft, inputs: StepInputs) -> Draft:
    for step in STEPS:
        draft = step.shorten(draft, inputs)
        if step.is_enough(draft, inputs):
            break
    # The whole window fits: drop only the units that were compacted ahead of time.
    return _without_beginning(draft, inputs) if step.shorten is clip_core else draft


def _without_beginning(draft: Draft, inputs: StepInputs) -> Draft:
    """Drop the units up to `leave_to`, if any."""
    units = (*draft.older, *draft.rounds)
    num_leaving = sum(unit[-1].position <= draft.leave_to for unit in units)
    if num_leaving == 0:
        return draft
    slid = drop_units(draft, num_leaving)
    return slid if inputs.fits(slid) else draft
