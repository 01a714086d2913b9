"""Parameters of the steps that shorten a prompt: token counts, limits and candidates to recall."""

from dataclasses import dataclass, replace
from enum import Enum

from agentmem.config import Budget
from agentmem.context.draft import Draft
from agentmem.context.policy import Policy
from agentmem.context.render import Renderer
from agentmem.context.select_hits import select_hits
from agentmem.protocols import Hit


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
class StepInputs:
    """
    The parameters that all steps have in common.

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

    def recalling(self, draft: Draft) -> Draft:
        """Return *draft* with the recalled messages for its window."""
        hits = select_hits(draft, self.found, self.renderer, self.budget, self.most)
        return draft if hits == draft.hits else replace(draft, hits=hits)

    def fits(self, draft: Draft) -> bool:
        """Whether *draft* is within the budget."""
        return self.renderer.size(draft) <= self.budget.prompt

    def fits_with_margin(self, draft: Draft) -> bool:
        """Whether *draft* leaves as many tokens free as a slide."""
        return self.renderer.size(draft) <= self.budget.prompt - self.margin(draft)

    def room(self, draft: Draft) -> int:
        """Return the room of the window, its core included, after pins, summaries and hits."""
        fixed = self.renderer.size(replace(draft, older=(), rounds=()))
        return self.budget.prompt - fixed + self.renderer.count_unit(draft.core, draft)

    def margin(self, draft: Draft) -> int:
        """
        Return the minimum free tokens after a slide, if enough units can be dropped.

        Half of the tokens between the low-water mark and a full window. A prompt that barely fits
        after stubs or a slide would slide with the next turn, and invalidate its prefix twice.
        """
        return int((1 - self.budget.low_water) * self.room(draft) / 2)
