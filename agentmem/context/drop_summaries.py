"""Drop summaries, oldest first."""

from collections.abc import Sequence
from dataclasses import replace

from agentmem.context.draft import Draft
from agentmem.context.drop_recalled import with_hits_that_fit
from agentmem.context.render import Renderer
from agentmem.context.step_inputs import StepInputs
from agentmem.types import Summary


def drop_summaries(draft: Draft, inputs: StepInputs) -> Draft:
    """Drop the oldest summaries until the rest fits without hits."""
    bare = replace(draft, hits=())
    while not inputs.fits(bare) and bare.summaries:
        bare = replace(bare, summaries=bare.summaries[1:])
    return with_hits_that_fit(bare, inputs)


def within_share(draft: Draft, inputs: StepInputs) -> Draft:
    """Drop the oldest summaries while all exceed their share: pins may have grown."""
    summaries = draft.summaries
    while summaries and summaries_size(summaries, inputs.renderer) > inputs.budget.summary_tokens:
        summaries = summaries[1:]
    return draft if summaries == draft.summaries else replace(draft, summaries=summaries)


def summaries_size(summaries: Sequence[Summary], renderer: Renderer) -> int:
    """Count the tokens of *summaries*."""
    return sum(renderer.count_text(summary.text) for summary in summaries)
