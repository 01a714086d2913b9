"""
Validation of dataclass fields by their annotations: lossless coercion, else an error.

A str becomes the role that it names, a list a tuple. Any other wrong type is an error on
construction, not at a later use.
"""

import types
from collections.abc import Callable, Mapping
from dataclasses import fields
from enum import StrEnum
from functools import cache
from operator import index
from typing import Any, Final, NewType, Union, get_args, get_origin

from agentmem.errors import InvalidInputError
from agentmem.types.short_repr import ShortRepr

Check = Callable[[Any], Any]


class Checked(ShortRepr):
    """Base class of values with no other checks than the types of their fields."""

    __slots__ = ()

    def __post_init__(self) -> None:
        check_fields(self)


def check_fields(value: object, error: type[ValueError] = InvalidInputError) -> None:
    """
    Validate each field of a dataclass against its annotation.

    Raises:
        ValueError: a field has the wrong type and cannot be coerced; raised as *error*.
    """
    kind: Any = type(value)
    for name, exact, check in _checks(kind):
        given = getattr(value, name)
        if type(given) in exact:
            continue
        try:
            held = check(given)
        except _WrongError as wrong:
            raise error(f"{kind.__name__}.{name} must be {wrong}, got {_shown(given)}") from None
        if held is not given:
            object.__setattr__(value, name, held)


def checked_value(
    what: str, given: Any, hint: Any, error: type[ValueError] = InvalidInputError
) -> Any:
    """
    Validate the argument *given*, named *what*, against the type *hint*, and return it.

    Raises:
        ValueError: it has the wrong type and cannot be coerced; raised as *error*.
    """
    exact, check = _look_of(hint)
    if type(given) in exact:
        return given
    try:
        return check(given)
    except _WrongError as wrong:
        raise error(f"{what} must be {wrong}, got {_shown(given)}") from None


def _shown(given: Any) -> str:
    try:
        return f"{given!r:.80}"
    except ValueError:
        # An int of thousands of digits cannot be converted to str.
        return f"a {type(given).__name__}"


class _WrongError(Exception):
    """The expected type, in words."""


@cache
def _checks(kind: type) -> tuple[tuple[str, frozenset[type], Check], ...]:
    """Return per field its name, the types that are accepted unchanged, and the full check."""
    return tuple((field.name, *_check_of(field.type)) for field in fields(kind))


@cache
def _look_of(hint: Any) -> tuple[frozenset[type], Check]:
    return _check_of(hint)


def _check_of(hint: Any) -> tuple[frozenset[type], Check]:
    if isinstance(hint, NewType):
        return _check_of(hint.__supertype__)
    if get_origin(hint) is not None:
        return _check_of_many(get_origin(hint), get_args(hint))
    if hint in _BUILTIN:
        return _BUILTIN[hint]
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return frozenset({hint}), _enum(hint)
    is_class = isinstance(hint, type) and hint is not Any
    if is_class and not getattr(hint, "_is_protocol", False):
        return frozenset({hint}), _instance(hint)
    return frozenset(), _protocol(hint) if is_class else lambda given: given


def _check_of_many(origin: Any, inner: tuple[Any, ...]) -> tuple[frozenset[type], Check]:
    if origin in {types.UnionType, Union}:
        return _union(inner)
    if issubclass(origin, Mapping):
        return frozenset(), _mapping(*inner)
    if origin is tuple:
        return frozenset(), _many(inner[0]) if inner[1:] == (...,) else _fixed(inner)
    return frozenset(), lambda given: given


def _union(hints: tuple[Any, ...]) -> tuple[frozenset[type], Check]:
    looks = [_check_of(hint) for hint in hints]
    exact = frozenset().union(*(kinds for kinds, _ in looks))

    def check(given: Any) -> Any:
        wrongs = []
        for _, look in looks:
            try:
                return look(given)
            except _WrongError as wrong:
                wrongs.append(str(wrong))
        raise _WrongError(" or ".join(wrongs))

    return exact, check


def _many(hint: Any) -> Check:
    exact, look = _check_of(hint)

    def check(given: Any) -> Any:
        if type(given) is tuple and not given:
            return given
        if not isinstance(given, (tuple, list)):
            raise _WrongError("a tuple")
        held = given if type(given) is tuple else tuple(given)
        if exact.issuperset(map(type, held)):
            return held
        try:
            looked = tuple(item if type(item) in exact else look(item) for item in held)
        except _WrongError as wrong:
            raise _WrongError(f"a tuple in which each is {wrong}") from None
        is_same = all(new is old for new, old in zip(looked, held, strict=True))
        return held if is_same else looked

    return check


def _fixed(hints: tuple[Any, ...]) -> Check:
    looks = [_check_of(hint) for hint in hints]

    def check(given: Any) -> Any:
        if not isinstance(given, tuple | list) or len(given) != len(looks):
            raise _WrongError(f"a tuple of {len(looks)}")
        pairs = zip(given, looks, strict=True)
        return tuple(item if type(item) in exact else look(item) for item, (exact, look) in pairs)

    return check


def _mapping(key: Any, value: Any) -> Check:
    keys, values = _many(key), _many(value)

    def check(given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise _WrongError("a mapping")
        try:
            held = keys(tuple(given)), values(tuple(given.values()))
        except _WrongError as wrong:
            raise _WrongError(f"a mapping; its keys or values are {wrong}") from None
        return (
            given
            if held == (tuple(given), tuple(given.values()))
            else dict(zip(*held, strict=True))
        )

    return check


def _enum(kind: type[StrEnum]) -> Check:
    def check(given: Any) -> Any:
        try:
            return kind(given)
        except (ValueError, TypeError):
            raise _WrongError(f"one of {', '.join(kind)}") from None

    return check


def _instance(kind: type) -> Check:
    def check(given: Any) -> Any:
        if not isinstance(given, kind):
            raise _WrongError(f"a {kind.__name__}")
        return given

    return check


def _has(given: Any, name: str) -> bool:
    try:
        return hasattr(given, name)
    # A property of a custom class may raise anything: it exists, and is read on use.
    except Exception:  # noqa: BLE001 - see above
        return True


def _protocol(kind: type) -> Check:
    names = [name for name in vars(kind) if not name.startswith("_")]

    def check(given: Any) -> Any:
        if isinstance(given, type) or not all(_has(given, name) for name in names):
            raise _WrongError(f"an object with {' and '.join(names)}, as a {kind.__name__} is")
        return given

    return check


def _refuse(what: str) -> Check:
    def check(_: Any) -> Any:
        raise _WrongError(what)

    return check


def _text(given: Any) -> str:
    if not isinstance(given, str):
        raise _WrongError("a str")
    return str.__str__(given)


def _whole(given: Any) -> int:
    # NumPy integers are accepted; True is not a number.
    try:
        return _refuse("an integer")(given) if isinstance(given, bool) else index(given)
    except TypeError:
        raise _WrongError("an integer") from None


def _real(given: Any) -> float:
    if isinstance(given, bool | str | bytes):
        raise _WrongError("a number")
    try:
        return float(given)
    except (TypeError, ValueError, OverflowError):
        raise _WrongError("a number") from None


_BUILTIN: Final[Mapping[Any, tuple[frozenset[type], Check]]] = {
    str: (frozenset({str}), _text),
    int: (frozenset({int}), _whole),
    float: (frozenset({float, int}), _real),
    None: (frozenset({types.NoneType}), _refuse("None")),
    types.NoneType: (frozenset({types.NoneType}), _refuse("None")),
}
