"""The recent window: how many whole units stand in the prompt."""

from collections.abc import Sequence


def keep_from(sizes: Sequence[int], limit: int) -> int:
    """
    Return the index of the first unit to keep so that all from there on take at most *limit*.

    The walk goes back from the newest and stops at the first that does not fit, even if an older,
    shorter one would: a gap in the middle of a conversation reads to the model as if nothing had
    been said there; a missing beginning is what the summary tier is for.
    """
    first = len(sizes)
    left = limit
    while first > 0 and sizes[first - 1] <= left:
        first -= 1
        left -= sizes[first]
    return first
