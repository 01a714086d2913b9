"""
Rows that cannot be read: found as they are read, and named by session, branch and position.

A message that cannot be read is one among others, so that a stand-in takes its place (see
`stand_ins`). Every other row that cannot be read is a `DamagedRowError` for the call that needs it.
"""

import logging
import struct
from collections.abc import Callable
from datetime import datetime
from functools import wraps
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Column, Connection, Engine, LargeBinary, Text, select

from agentmem.errors import DamagedRowError
from agentmem.machine.logs import Once, log
from agentmem.store.database.schema import Base, UtcDateTime

T = TypeVar("T")
V = TypeVar("V")

UNREADABLE: Final = (
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    AttributeError,
    AssertionError,
    RecursionError,
    StopIteration,
    struct.error,
)
"""What reading values of the wrong type or range raises; there is no closed list for a damage."""

_MISSING: Final = object()
_met: Final[WeakKeyDictionary[Engine, Once]] = WeakKeyDictionary()
_log = logging.getLogger(__name__)

_BOUND: Final = 2**62
"""No number that is counted gets there, and one more than it still is one of the database."""

_ID_BOUND: Final = 2**63
"""Of ids: a database goes on from the largest one that it finds."""


def guarded(connection: Connection, work: Callable[[Connection], T]) -> T:
    """
    Run *work*, and name the session and branch of a row that it cannot read.

    Any other error is a fault of *work* and comes out as it is: a backup would not help.

    Raises:
        DamagedRowError: a row cannot be read.
    """
    try:
        return work(connection)
    except DamagedRowError as error:
        log_unreadable(connection, error)
        raise _located(connection, error) from error.__cause__


def reading(table: str) -> Callable[[Callable[[Any], V]], Callable[[Any], V]]:
    """Decorate what makes a value of a row of *table*, so that it raises a `DamagedRowError`."""

    def decorate(convert: Callable[[Any], V]) -> Callable[[Any], V]:
        @wraps(convert)
        def checked(row: Any) -> V:
            check_row(table, row)
            try:
                return convert(row)
            except UNREADABLE as error:
                raise damaged(table, row, None, _said(error)) from error

        return checked

    return decorate


def log_damaged(  # noqa: PLR0913 - what names a row
    connection: Connection,
    table: str,
    *,
    column: str | None = None,
    session_id: int | None = None,
    branch_id: int | None = None,
    position: int | None = None,
) -> None:
    """Log that a row cannot be read, the first time that this one of its database is met."""
    is_new = _met.setdefault(connection.engine, Once())
    if is_new((table, column, session_id, branch_id, position)):
        log(
            _log,
            logging.WARNING,
            "row_damaged",
            "a row of {table} cannot be read (branch {branch_id}, position {position})",
            table=table,
            column=column,
            session_id=session_id,
            branch_id=branch_id,
            position=position,
        )


def log_unreadable(connection: Connection, error: DamagedRowError) -> None:
    """Log the row that *error* is about; its reason may quote what is stored."""
    log_damaged(
        connection,
        error.table,
        column=error.column,
        session_id=error._session_id,  # noqa: SLF001 - ids are not for callers, who have names
        branch_id=error._branch_id,  # noqa: SLF001 - as above
        position=error.position,
    )


def check_row(table: str, row: Any) -> None:
    """
    Check that each column of *row* has a value of its type.

    Raises:
        DamagedRowError: one has not.
    """
    for name, kind, is_nullable, bound in _columns(table):
        value: Any = getattr(row, name, _MISSING)
        if type(value) is kind:
            if kind is str and not value.isascii() and not _is_text(value):
                raise damaged(table, row, name, f"{value!r:.80} is not a string")
            if kind is int and not -bound < value < bound:
                raise damaged(table, row, name, f"{value} is out of range")
            continue
        if value is _MISSING or (value is None and is_nullable):
            continue
        raise damaged(table, row, name, f"{value!r:.80} is not of type {kind.__name__}")


def damaged(table: str, row: Any, column: str | None, reason: str) -> DamagedRowError:
    """Return the error of a row; `guarded` looks up whose row it is."""
    error = DamagedRowError(
        table,
        column=column,
        position=_whole(getattr(row, "position", None)),
        reason=reason,
    )
    is_branch = table == "branch"
    error._branch_id = _whole(getattr(row, "id" if is_branch else "branch_id", None))  # noqa: SLF001 - between here and `_located`
    error._session_id = _whole(getattr(row, "id" if table == "session" else "session_id", None))  # noqa: SLF001 - as above
    return error


def _located(connection: Connection, error: DamagedRowError) -> DamagedRowError:
    """Return *error* with the names of the session and the branch, as far as they can be read."""
    branch_id, session_id = error._branch_id, error._session_id  # noqa: SLF001 - as above
    if error.session is not None or (branch_id is None and session_id is None):
        return error
    branch, session = Base.metadata.tables["branch"], Base.metadata.tables["session"]
    name = key = None
    if branch_id is not None:
        columns = select(branch.c.name, branch.c.session_id).where(branch.c.id == branch_id)
        found = connection.execute(columns).first()
        if found is not None:
            name, session_id = found.name, session_id or _whole(found.session_id)
    if session_id is not None:
        key = connection.scalar(select(session.c.key).where(session.c.id == session_id))
    found_error = DamagedRowError(
        error.table,
        column=error.column,
        session=key if isinstance(key, str) else None,
        branch=name if isinstance(name, str) else None,
        position=error.position,
        reason=error.reason,
    )
    # Logged again further up, it is known to be the same row.
    found_error._branch_id, found_error._session_id = error._branch_id, error._session_id  # noqa: SLF001 - as above
    return found_error


def _columns(table: str) -> list[tuple[str, Any, bool, int]]:
    known = _KNOWN.get(table)
    if known is None:
        columns = Base.metadata.tables[table].columns
        known = _KNOWN[table] = [
            (one.name, _kind(one), bool(one.nullable), _ID_BOUND if _is_id(one) else _BOUND)
            for one in columns
        ]
    return known


_KNOWN: Final[dict[str, list[tuple[str, Any, bool, int]]]] = {}


def _is_id(column: Column[Any]) -> bool:
    return column.name in {"id", "target_id", "after_message"} or bool(column.foreign_keys)


def _kind(column: Column[Any]) -> type:
    if isinstance(column.type, UtcDateTime):
        return datetime
    if isinstance(column.type, LargeBinary):
        return bytes
    return str if isinstance(column.type, Text) else int


def _is_text(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]
