"""
Interval arithmetic on runs of positions.

A layout has a handful of runs, however long the conversation is, so no function iterates over
messages that are not in the prompt.
"""

from collections.abc import Iterable
from dataclasses import replace

from agentmem.types import Span


def split_at(span: Span, cut: int) -> list[Span]:
    """Split *span* after position *cut*; an empty side is omitted."""
    sides = (
        replace(span, last=min(span.last, cut)),
        replace(span, first=max(span.first, cut + 1)),
    )
    return [side for side in sides if side.first <= side.last]


def subtract(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """Return *spans* (ascending) without the positions of *taken* (ascending)."""
    removed = list(taken)
    left: list[Span] = []
    for span in spans:
        start = span.first
        for other in removed:
            if other.last < start or other.first > span.last:
                continue
            if other.first > start:
                left.append(replace(span, first=start, last=other.first - 1))
            start = other.last + 1
        if start <= span.last:
            left.append(replace(span, first=start))
    return left
