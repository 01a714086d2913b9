"""The recent window: the number of whole units that fit."""

from collections.abc import Sequence


def keep_from(sizes: Sequence[int], limit: int) -> int:
    """
    Return the index of the first kept unit, so that all from there on take at most *limit*.

    It goes back from the newest and stops at the first that does not fit, even if an older, shorter
    one would: a gap in the middle of a conversation is invisible to the model, while a missing
    beginning is the purpose of the summary tier.
    """
    first = len(sizes)
    left = limit
    while first > 0 and sizes[first - 1] <= left:
        first -= 1
        left -= sizes[first]
    return first
