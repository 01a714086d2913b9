"""
Clip long tool-call arguments so that a JSON object stays valid.

String values are clipped in their middle, all to the same maximum length, and all other bytes are
unchanged. If the structure alone is too long, the whole text is clipped and becomes the only
string of an object. Invalid JSON is clipped as text.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

from agentmem.context.clip_text import HEAD_SHARE, cut_middle
from agentmem.types import ToolCall

_MAX_DEPTH: Final = 100
"""Deeper JSON is clipped as text: the depth limit of parsing depends on the stack."""

_KEY: Final = "clipped"
_STRING: Final = re.compile(r'"((?:[^"\\]+|\\.)*+)"', re.DOTALL)
_BRACKET: Final = re.compile(r"[\[\]{}]")
_HIGH: Final = re.compile(r"\\u[dD][89abAB]")
_LOW: Final = re.compile(r"\\u[dD][c-fC-F]")
_ESCAPE_CHARS: Final = 6  # of \uXXXX, the longest one


def clip_calls(calls: Sequence[ToolCall], most: Sequence[int], marker: str) -> tuple[ToolCall, ...]:
    """Return *calls* with about ``most[i]`` characters of arguments each, around *marker*."""
    return tuple(
        replace(call, arguments=clip_arguments(call.arguments, length, marker))
        for call, length in zip(calls, most, strict=True)
    )


def clip_arguments(written: str, most: int, marker: str) -> str:
    """Return *written* if it has at most *most* characters, else a clipped form."""
    if len(written) <= most:
        return written
    places = _strings(written)
    if places is None:
        shorter = cut_middle(written, max(0, most - len(marker)), marker)
    else:
        shorter = _whole(written, most, marker)
        least = _length(len(written), places, 0, marker)
        if least <= max(most, len(shorter)):
            shorter = _cut_strings(written, places, most, marker)
    return shorter if len(shorter) < len(written) else written


def share_out(lengths: Sequence[int], total: int) -> list[int]:
    """Divide *total* characters among the texts: short ones are kept whole."""
    given = [0] * len(lengths)
    left = total
    order = sorted(range(len(lengths)), key=lambda index: lengths[index])
    for num_done, index in enumerate(order):
        given[index] = min(lengths[index], left // (len(lengths) - num_done))
        left -= given[index]
    return given


@lru_cache(maxsize=16)
def _strings(written: str) -> tuple[tuple[int, int], ...] | None:
    """Return the ranges of all string contents; None if *written* is not a JSON object."""
    if not written.lstrip().startswith("{") or _depth(written) > _MAX_DEPTH:
        return None
    try:
        json.loads(written, parse_int=str, parse_float=str)
    except ValueError:
        return None
    return tuple(found.span(1) for found in _STRING.finditer(written))


def _depth(written: str) -> int:
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", written)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _length(length: int, places: Sequence[tuple[int, int]], kept: int, marker: str) -> int:
    """Return the length of a text of *length* after clipping each string to *kept*."""
    longest = kept + len(marker)
    return length - sum(max(0, last - first - longest) for first, last in places)


def _cut_strings(written: str, places: Sequence[tuple[int, int]], most: int, marker: str) -> str:
    """Clip the longest strings, all to the same length, to *most* characters in total."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        if _length(len(written), places, middle, marker) <= most:
            low = middle
        else:
            high = middle - 1
    parts: list[str] = []
    end = 0
    for first, last in places:
        if last - first > low + len(marker):
            head = _boundary(written, first, first + int(low * HEAD_SHARE), is_end=True)
            tail = _boundary(written, first, last - (low - int(low * HEAD_SHARE)), is_end=False)
            parts += [written[end:head], marker]
            end = tail
    return "".join([*parts, written[end:]])


def _boundary(written: str, first: int, cut: int, *, is_end: bool) -> int:
    """
    Return the nearest index to *cut* that splits neither an escape nor a surrogate pair.

    Args:
        written: JSON.
        first: start of the string content.
        cut: the wanted index.
        is_end: whether it ends the kept part, so that it moves back, not forward.
    """
    for start in range(max(first, cut - _ESCAPE_CHARS + 1), cut):
        if _is_escape(written, first, start):
            length = _ESCAPE_CHARS if written[start + 1] == "u" else 2
            if start + length > cut:
                cut = start if is_end else start + length
                break
    before = cut - _ESCAPE_CHARS
    is_escape = before >= first and _is_escape(written, first, before)
    if is_escape and _HIGH.match(written, before) and _LOW.match(written, cut):
        return before if is_end else cut + _ESCAPE_CHARS
    return cut


def _is_escape(written: str, first: int, place: int) -> bool:
    """Whether the character at *place* is a backslash that starts an escape."""
    start = place
    while start >= first and written[start] == "\\":
        start -= 1
    return (place - start) % 2 == 1


def _whole(written: str, most: int, marker: str) -> str:
    """Return an object with the text of *written* as its only string."""
    kept = max(0, most - len(marker) - len(_KEY) - len('{"": ""}'))
    return json.dumps({_KEY: cut_middle(written, kept, marker)}, ensure_ascii=False)
