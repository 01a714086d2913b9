"""The recent window: which whole turns stand in the prompt, and when it slides."""

from collections.abc import Sequence


def slide(
    sizes: Sequence[int], *, start: int | None, room: int, current: int, low_water: float
) -> int:
    """
    Give the index of the first turn that stays in the window.

    The walk never leaves a gap: a missing beginning is honest, a hole in the middle reads to the
    model as if nothing had been said there. With a *start* the window stays where it was as long
    as it fits, so the prompt's prefix stays the same; when it no longer fits it slides in one
    step to the low-water mark and has room to grow again. Without one it is filled from the end.

    Args:
        sizes: tokens of each turn before the current one, oldest first.
        start: index where the window began last time, None for a new window.
        room: tokens for these turns.
        current: tokens of the current turn; it counts towards the low-water mark, since it is in
            the window from the next turn on.
        low_water: share of *room* and *current* that may be taken after a slide.
    """
    if start is not None and sum(sizes[start:]) <= room:
        return start
    limit = room if start is None else min(room, int(low_water * (room + current)) - current)
    first = len(sizes)
    left = limit
    while first > 0 and sizes[first - 1] <= left:
        first -= 1
        left -= sizes[first]
    return first
