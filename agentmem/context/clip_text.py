"""Clip the middle of a long text, around a marker: the last resort, after the window is empty."""

from collections.abc import Callable

from agentmem.types import StoredMessage

CALL_MARKER = "[... clipped; message {position} has all of it ...]"
"""Marker in the middle of a clipped argument, without characters that JSON escapes."""

MAX_CHARS_PER_TOKEN = 64
"""Maximum characters per token: longer texts are assumed not to fit, without counting."""

HEAD_SHARE = 0.6
"""Share of the head: it names the topic of a text, the tail often the outcome."""


def cut_middle(text: str, kept: int, marker: str) -> str:
    """Keep *kept* characters of *text*, of its head and of its tail, around *marker*."""
    head = int(kept * HEAD_SHARE)
    tail = kept - head
    return f"{text[:head]}{marker}{text[len(text) - tail :]}"


def most_kept(size: int, fits: Callable[[int], bool]) -> int | None:
    """
    Return the maximum *kept* of *size* characters with ``fits(kept)``; None if not even 0 fits.

    Tokens are only roughly proportional to characters, so it is a search; each step calls *fits*
    on the real text, so the result is exact for any tokenizer.
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


def marker_of(stored: StoredMessage) -> str:
    """Return the marker in the middle of a clipped text, which names its source."""
    size = len(stored.message.text)
    return f"\n[... clipped; message {stored.position} has all {size} characters ...]\n"
