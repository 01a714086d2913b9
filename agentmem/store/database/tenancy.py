"""Whose rows: the clauses and checks by which an id alone opens nothing."""

import hashlib
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import ColumnElement, bindparam

from agentmem.errors import InvalidInputError, SessionNotFoundError
from agentmem.store.database.schema import OwnerRow
from agentmem.types import Scope

_MAX_ID: Final = 2**63 - 1


def digest(*names: str) -> bytes:
    """Stand for *names* in an index. Lengths are part of it, so separators cannot collide."""
    hasher = hashlib.sha256()
    for name in names:
        encoded = name.encode()
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.digest()


def owner_digest(scope: Scope) -> bytes:
    """Stand for the namespace and the user."""
    return digest(scope.namespace, scope.user)


def is_owner() -> ColumnElement[bool]:
    """Return the clause that every statement over rows of a session ends with."""
    return OwnerRow.digest == bindparam("owner")


def check_id(what: str, number: int) -> int:
    """
    Return *number* if a row could have it.

    Raises:
        SessionNotFoundError: no row can; SQLite and PostgreSQL would fail on it in their own ways.
    """
    if not _is_whole(number) or not 0 < number <= _MAX_ID:
        raise SessionNotFoundError(f"there is no {what} {number!r} here")
    return number


def check_position(what: str, number: int) -> int:
    """
    Return *number* if it counts messages.

    Raises:
        InvalidInputError: it is not an integer; databases would convert it in different ways.
    """
    if not _is_whole(number):
        raise InvalidInputError(f"{what} must be an integer, got {number!r:.50}")
    return number


def check_moment(moment: datetime) -> datetime:
    """
    Return *moment* if it is one.

    Raises:
        InvalidInputError: it has no time zone, so it could be any of a day's moments, or it is in
            no year from 1 to 9999 of UTC.
    """
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"a time must be a datetime, got {moment!r:.50}")
    if moment.utcoffset() is None:
        raise InvalidInputError(f"{moment} has no time zone: give one, such as UTC")
    try:
        moment.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInputError(f"{moment} is out of the range of a datetime in UTC") from error
    return moment


def not_found(what: str, name: object, scope: Scope) -> SessionNotFoundError:
    """Return the error for what is absent or another user's: the two look the same."""
    return SessionNotFoundError(
        f"there is no {what} {name!r} of user {scope.user!r} in namespace {scope.namespace!r}"
    )


def _is_whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool)
