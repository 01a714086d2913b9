"""Cuts the middle out of a text that is too long: the last resort, after the window gave way."""

from collections.abc import Callable

MAX_CHARS_PER_TOKEN = 64
"""More characters than this for each token of a room are taken not to fit without counting."""

HEAD_SHARE = 0.6
"""Of what is kept: a beginning says what a text is, an end often what came of it."""


def cut_middle(text: str, kept: int, marker: str) -> str:
    """Keep *kept* characters of *text*, some of its head and some of its tail, around *marker*."""
    head = int(kept * HEAD_SHARE)
    tail = kept - head
    return f"{text[:head]}{marker}{text[len(text) - tail :]}"


def most_kept(size: int, fits: Callable[[int], bool]) -> int | None:
    """
    Find how many of *size* characters can be kept so that ``fits(kept)``; None if not even 0.

    Tokens only roughly go by characters, so the number is searched for; each step asks *fits*
    about the real text, so the answer holds whatever a tokenizer does at the seams.
    """
    if not fits(0):
        return None
    low, high = 0, size
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
