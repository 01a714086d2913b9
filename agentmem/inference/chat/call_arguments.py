"""
Preserve the exact JSON of tool-call arguments through templates that take objects.

The template gets placeholders: one for the whole object where it writes that as JSON, else one for
each number whose spelling would change and each duplicate key. In the rendered transcript they are
replaced by the model's text.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from typing import Any

from agentmem.types import ToolCall, repair_escapes, repair_text

_MAX_DEPTH = 100
"""Deeper objects are shown as ``{}``: else the JSON depth limit would depend on the stack."""

_DIGITS = 5
_MAX_HELD = 100_000
# Long enough to occur in no text by chance; plus one half it is still exact as a float.
_FIRST_STAMP = 7305821946
_STRING = re.compile(r'"(?:[^"\\]+|\\.)*+(?:"|\Z)', re.DOTALL)
_UNICODE = re.compile(r"\\u([0-9a-fA-F]{4})")
_BRACKET = re.compile(r"[\[\]{}]")
_MAX_INT_CHARS = 300
"""Maximum digits of an int in a template: Python formats at most some thousands."""

Object = dict[str, Any]


def raw_object(call: ToolCall) -> str:
    """
    Return the arguments of *call* unchanged if they are a JSON object, else ``{}``.

    A lone surrogate, which JSON can have as an escape, becomes U+FFFD.
    """
    return _read(call)[0]


def spellings(call: ToolCall) -> Iterator[str]:
    """Yield the arguments of *call* as JSON, and with the escapes resolved."""
    yield call.arguments
    if "\\u" in call.arguments:
        yield repair_text(_UNICODE.sub(lambda found: chr(int(found[1], 16)), call.arguments))


class Arguments:
    """
    Placeholders for the arguments of one transcript, and their values.

    Args:
        escape: applied to every shown text.
        texts: all other shown texts; no placeholder occurs in them.
    """

    def __init__(self, escape: Callable[[str], str], texts: Iterable[str]) -> None:
        self._escape = escape
        self._texts = texts
        self._stamp = ""
        self._held: list[str] = []
        self._whole: set[int] = set()

    def whole(self, call: ToolCall) -> Object:
        """Return a placeholder object for all arguments of *call*."""
        written, value = _read(call)
        if not value:
            return {}
        self._whole.add(len(self._held))
        key = self._hold(self._escape(written))
        return {key: key}

    def by_value(self, call: ToolCall) -> Object:
        """Return the arguments of *call*, with placeholders where the spelling would change."""
        value: Object = json.loads(
            raw_object(call),
            parse_int=self._integer,
            parse_float=self._number,
            parse_constant=self._number,
            object_pairs_hook=self._object,
        )
        return value

    def restore(self, text: str) -> str | None:
        """
        Replace each placeholder by the model's text.

        None if the template has not written each placeholder object as a whole.
        """
        if not self._held:
            return text
        found_whole: set[int] = set()
        found_other: set[int] = set()

        def put(found: re.Match[str]) -> str:
            index = int(found[1] or found[2])
            (found_other if found[1] is None else found_whole).add(index)
            return self._held[index] if index < len(self._held) else found[0]

        restored = _stand_in(self._stamp).sub(put, text)
        if self._whole != found_whole or not self._whole.isdisjoint(found_other):
            return None
        return restored

    @property
    def _has_room(self) -> bool:
        return len(self._held) < _MAX_HELD

    def _hold(self, written: str) -> str:
        if not self._held:
            texts = tuple(self._texts)
            stamps = map(str, count(_FIRST_STAMP))
            self._stamp = next(s for s in stamps if not any(s in text for text in texts))
        self._held.append(written)
        return f"{self._stamp}{len(self._held) - 1:0{_DIGITS}}"

    def _integer(self, written: str) -> int:
        if (len(written) <= _MAX_INT_CHARS and written != "-0") or not self._has_room:
            return int(written[:_MAX_INT_CHARS])
        return int(self._hold(written))

    def _number(self, written: str) -> float:
        is_same = (
            written not in {"NaN", "Infinity", "-Infinity"} and repr(float(written)) == written
        )
        if is_same or not self._has_room:
            return float(written)
        return float(f"{self._hold(written)}.5")

    def _object(self, pairs: list[tuple[str, Any]]) -> Object:
        made: Object = {}
        for key, value in pairs:
            shown = self._escape(key)
            if shown in made and self._has_room:
                shown += self._hold("")
            made[shown] = self._escaped(value)
        return made

    def _escaped(self, value: Any) -> Any:
        """Escape the strings of a value whose objects are escaped already."""
        if isinstance(value, str):
            return self._escape(value)
        return [self._escaped(item) for item in value] if isinstance(value, list) else value


@lru_cache(maxsize=8)
def _stand_in(stamp: str) -> re.Pattern[str]:
    held = rf"{stamp}(\d{{{_DIGITS}}})"
    return re.compile(rf'\{{\s*"{held}"\s*:\s*"{stamp}\d{{{_DIGITS}}}"\s*\}}|{held}(?:\.5)?')


def _read(call: ToolCall) -> tuple[str, Object]:
    written = repair_escapes(call.arguments)
    if _depth(written) > _MAX_DEPTH:
        return "{}", {}
    try:
        # Numbers are not parsed: an int of thousands of digits would raise.
        value = json.loads(written, parse_int=str, parse_float=str)
    except ValueError:
        value = None
    return (written, value) if isinstance(value, dict) else ("{}", {})


def _depth(written: str) -> int:
    if written.count("{") + written.count("[") <= _MAX_DEPTH:
        return 0
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", written)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
