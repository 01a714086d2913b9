"""
What a provider wants back with a call, a thought or a message: kept as it came, and never read.

Signatures of thoughts, encrypted reasoning, cache hints: any JSON value.
"""

import json
from typing import Any, Final

from agentmem.errors import InvalidInputError

_MAX_DEPTH: Final = 100


def check_extra(what: str, value: Any) -> Any:
    """
    Return a copy of *value* if JSON can hold it exactly.

    Raises:
        InvalidInputError: it is not a JSON value, or would be another one after a round trip.
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
    """Return *value* as ASCII, so that every database holds any character of it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def read_extra(written: str) -> Any:
    """Return the value that `write_extra` wrote."""
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
