"""
Arithmetic on runs of positions.

A prompt is accounted for by a handful of runs, however long the conversation is, so nothing here
walks over messages that are not in the prompt.
"""

from collections.abc import Iterable

from agentmem.types import Span, Tier


def shown_spans(positions: Iterable[tuple[int, Tier]]) -> list[Span]:
    """Join ascending positions with their tiers into spans."""
    spans: list[Span] = []
    for position, tier in positions:
        if spans and spans[-1].last == position - 1 and spans[-1].tier is tier:
            spans[-1] = Span(first=spans[-1].first, last=position, tier=tier)
        else:
            spans.append(Span(first=position, last=position, tier=tier))
    return spans


def with_gaps(shown: Iterable[Span], head: int, cut: int = 0) -> tuple[Span, ...]:
    """
    Complete ascending *shown* spans to a layout of 1 to *head*: each gap is a span with tier None.

    A gap that reaches over *cut* is two spans, since the two sides are hidden for two reasons.
    """
    layout: list[Span] = []
    end = 0
    for span in [*shown, Span(first=head + 1, last=head + 1, tier=None)]:
        layout += split_at(Span(first=end + 1, last=span.first - 1, tier=None), cut)
        layout.append(span)
        end = span.last
    return tuple(layout[:-1])


def split_at(span: Span, cut: int) -> list[Span]:
    """Split *span* after position *cut*; an empty side is left out."""
    sides = (
        Span(first=span.first, last=min(span.last, cut), tier=span.tier),
        Span(first=max(span.first, cut + 1), last=span.last, tier=span.tier),
    )
    return [side for side in sides if side.first <= side.last]


def hidden(layout: Iterable[Span]) -> list[Span]:
    """Give the spans that the prompt does not show."""
    return [span for span in layout if span.tier is None]


def subtract(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Give what is left of *spans* (ascending) without the positions of *taken* (ascending)."""
    removed = list(taken)
    left: list[Span] = []
    for span in spans:
        start = span.first
        for other in removed:
            if other.last < start or other.first > span.last:
                continue
            if other.first > start:
                left.append(Span(first=start, last=other.first - 1, tier=span.tier))
            start = other.last + 1
        if start <= span.last:
            left.append(Span(first=start, last=span.last, tier=span.tier))
    return left
