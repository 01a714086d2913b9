"""Drop recalled messages: hits of this prompt, then groups that earlier prompts kept in place."""

from dataclasses import replace

from agentmem.context.draft import Draft
from agentmem.context.step_inputs import StepInputs


def drop_hits(draft: Draft, inputs: StepInputs) -> Draft:
    """Drop the weakest hits, if the prompt fits without any."""
    return with_hits_that_fit(replace(draft, hits=()), inputs)


def drop_recalled_groups(draft: Draft, inputs: StepInputs) -> Draft:
    """Drop the kept groups; no older turn is left, so that is at most the current turn's."""
    return with_hits_that_fit(replace(draft, hits=(), groups=()), inputs)


def with_hits_that_fit(bare: Draft, inputs: StepInputs) -> Draft:
    """
    Return *bare* with the best hits that fit.

    Hits are added again into the room freed by a step: the next prompt would show them.
    """
    if not inputs.fits(bare):
        return bare
    full = inputs.recalling(bare)
    while full.hits and not inputs.fits(full):
        full = replace(full, hits=full.hits[:-1])
    return full
