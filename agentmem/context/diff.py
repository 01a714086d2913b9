"""The difference of two prompts of one branch."""

from dataclasses import dataclass

from agentmem.context.layout import join
from agentmem.context.position_ranges import subtract
from agentmem.types import Prompt, Span, Tier, common_prefix
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptDiff(Checked):
    """
    The changes from one prompt to another.

    *entered* and *left* are messages that only the second or only the first shows, in any tier;
    *pins* are the keys of the pins that differ, *summaries* the keys of summaries.
    """

    common_tokens: int
    entered: tuple[Span, ...]
    left: tuple[Span, ...]
    pins: tuple[str, ...]
    summaries: tuple[str, ...]
    tokens_by_tier: dict[Tier, int]
    """Change of tokens per tier; unchanged tiers are omitted."""


def diff(one: Prompt, other: Prompt) -> PromptDiff:
    """Compare two prompts of the same branch."""
    shown_one, shown_other = _shown(one), _shown(other)
    changed = {
        tier: other.tokens_by_tier.get(tier, 0) - one.tokens_by_tier.get(tier, 0) for tier in Tier
    }
    keys = {s.key for s in one.summaries} ^ {s.key for s in other.summaries}
    return PromptDiff(
        common_tokens=common_prefix(one.token_ids, other.token_ids),
        entered=tuple(subtract(shown_other, shown_one)),
        left=tuple(subtract(shown_one, shown_other)),
        pins=tuple(sorted({key for key, _ in set(one.pins) ^ set(other.pins)})),
        summaries=tuple(sorted(keys)),
        tokens_by_tier={tier: num for tier, num in changed.items() if num},
    )


def _shown(prompt: Prompt) -> list[Span]:
    return join(span for span in prompt.layout if span.tier not in (None, Tier.SUMMARY))
