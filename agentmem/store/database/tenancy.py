"""Tenancy: clauses and checks that bind rows to a namespace and user; ids give no access."""

import hashlib
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import ColumnElement, bindparam

from agentmem.errors import InvalidInputError, SessionNotFoundError
from agentmem.store.database.schema import OwnerRow
from agentmem.types import Scope
from agentmem.types.checks import is_int

_MAX_ID: Final = 2**63 - 1


def digest(*names: str) -> bytes:
    """Return a hash of *names* for an index. With lengths, so that names cannot collide."""
    hasher = hashlib.sha256()
    for name in names:
        encoded = name.encode()
        hasher.update(len(encoded).to_bytes(8, "little"))
        hasher.update(encoded)
    return hasher.digest()


def owner_digest(scope: Scope) -> bytes:
    """Return the hash of namespace and user."""
    return digest(scope.namespace, scope.user)


def is_owner() -> ColumnElement[bool]:
    """Return the tenancy clause of every statement over rows of a session."""
    return OwnerRow.digest == bindparam("owner")


def check_id(what: str, number: int) -> int:
    """
    Return *number* if it is a possible row id.

    Raises:
        SessionNotFoundError: it is not; SQLite and PostgreSQL would fail differently.
    """
    if not is_int(number) or not 0 < number <= _MAX_ID:
        raise SessionNotFoundError(f"there is no {what} {number!r} here")
    return number


def check_position(what: str, number: int) -> int:
    """
    Return *number* if it is a possible position.

    Raises:
        InvalidInputError: it is not an integer; databases would convert it differently.
    """
    if not is_int(number):
        raise InvalidInputError(f"{what} must be an integer, got {number!r:.50}")
    return number


def check_moment(moment: datetime) -> datetime:
    """
    Return *moment* if it is valid.

    Raises:
        InvalidInputError: it has no time zone, or is outside of the years 1 to 9999 in UTC.
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
    """Return the error for absent rows and other users' rows, which are indistinguishable."""
    return SessionNotFoundError(
        f"there is no {what} {name!r} of user {scope.user!r} in namespace {scope.namespace!r}"
    )
