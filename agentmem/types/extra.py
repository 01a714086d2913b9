"""
Opaque provider data of a tool call, reasoning or a message: stored unchanged, never interpreted.

Signatures of reasoning, encrypted reasoning, cache hints: any JSON value.
"""

import json
from typing import Any, Final

from agentmem.errors import InvalidInputError

_MAX_DEPTH: Final = 100


def check_extra(what: str, value: Any) -> Any:
    """
    Return a copy of *value* if it survives a JSON round trip.

    Raises:
        InvalidInputError: it is not a JSON value, or a round trip would change it.
    """
    if value is None or isinstance(value, str):
        return value
    try:
        _check(what, value, depth=0)
        return read_extra(write_extra(value))
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError(f"{what} must be a JSON value: {error}") from error


def write_extra(value: Any) -> str:
    """Return *value* as ASCII JSON, which every database can store."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def read_extra(written: str) -> Any:
    """Parse the output of `write_extra`."""
    return json.loads(written)


def _check(what: str, value: Any, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise InvalidInputError(f"{what} is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, dict):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise InvalidInputError(f"{what} must have string keys, got {odd[0]!r:.80}")
        for item in value.values():
            _check(what, item, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            _check(what, item, depth + 1)
