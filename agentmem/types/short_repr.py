"""
Representations that fit a line: fields that differ from the defaults, long values truncated.

A prompt has thousands of ids, and a message may be as long as a book, too much for a debugger, a
notebook or a log line. The full values are attributes.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from typing import Any, Final

MAX_CHARS: Final = 120
"""Characters of a representation, at most."""

_MAX_TEXT: Final = 32
_MAX_ITEMS: Final = 3


class ShortRepr:
    """A base for dataclasses whose representation fits a line."""

    __slots__ = ()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__repr__" not in cls.__dict__:
            # In the class itself, else the decorator `dataclass` writes one of its own.
            cls.__repr__ = _repr_of_fields  # type: ignore[method-assign]


def short_repr(kind: str, /, *args: object, **named: object) -> str:
    """Return ``kind(args, name=value)`` in at most `MAX_CHARS` characters."""
    shown = [_short(one) for one in args]
    shown += [f"{name}={_short(value)}" for name, value in named.items()]
    text = f"{kind}({', '.join(shown)})"
    return text if len(text) <= MAX_CHARS else f"{text[: MAX_CHARS - 2]}…)"


def _repr_of_fields(self: Any) -> str:
    shown = {
        one.name: value
        for one in fields(self)
        if one.repr and not _is_default(one, value := getattr(self, one.name))
    }
    return short_repr(type(self).__name__, **shown)


def _is_default(one: Field[Any], value: object) -> bool:
    if one.default is not MISSING:
        default = one.default
    elif one.default_factory is not MISSING:
        default = one.default_factory()
    else:
        return False
    # A policy made by a factory need not compare equal to another one.
    return type(value) is type(default) and (value == default or repr(value) == repr(default))


def _short(value: object) -> str:
    if isinstance(value, Enum):
        return repr(value.value)
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_TEXT else f"{value[: _MAX_TEXT - 1]}…")
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, Mapping | AbstractSet | list | tuple):
        items = [_short(one) for one in list(value)[:_MAX_ITEMS]]
        is_small = len(value) <= _MAX_ITEMS and sum(map(len, items)) <= _MAX_TEXT
        return repr(value) if is_small and not _has_values(value) else f"<{len(value)} items>"
    if is_dataclass(value) and not isinstance(value, type):
        text = repr(value)
        return text if len(text) <= _MAX_TEXT else f"{type(value).__name__}(…)"
    text = repr(value)
    return text if " at 0x" not in text else f"<{type(value).__name__}>"


def _has_values(items: Any) -> bool:
    """Whether anything among *items* has a representation that may be long."""
    listed = [*items, *(items.values() if isinstance(items, Mapping) else ())]
    return any(not isinstance(one, str | int | float | bool | None) for one in listed)
