"""
Corrupt rows: detected on reading, and identified by session, branch and position.

A corrupt message is replaced by a placeholder, since the others are readable (see
`transcript.placeholders`).
Every other corrupt row raises `DamagedRowError` in the call that needs it.
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
"""Exceptions of reading values of the wrong type or range; the list is open for corruption."""

_MISSING: Final = object()
_met: Final[WeakKeyDictionary[Engine, Once]] = WeakKeyDictionary()
_log = logging.getLogger(__name__)

_BOUND: Final = 2**62
"""Bound of counted numbers; the next one is still in the range of the database."""

_ID_BOUND: Final = 2**63
"""Bound of ids: a database continues from the largest one."""


def guarded(connection: Connection, work: Callable[[Connection], T]) -> T:
    """
    Run *work*, and add session and branch to the error of a corrupt row.

    Other errors propagate unchanged: a backup would not help.

    Raises:
        DamagedRowError: a row is corrupt.
    """
    try:
        return work(connection)
    except DamagedRowError as error:
        log_unreadable(connection, error)
        raise _located(connection, error) from error.__cause__


def reading(table: str) -> Callable[[Callable[[Any], V]], Callable[[Any], V]]:
    """Decorate a function from a row of *table* to a value to raise `DamagedRowError`."""

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
    """Log a corrupt row, once per row and database."""
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
    """Log the row of *error*, without its reason, which may quote stored text."""
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
        DamagedRowError: one does not.
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
    """Return the error of a row; `guarded` adds session and branch."""
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
    """Return *error* with the names of session and branch, as far as they are readable."""
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
    # For deduplication when it is logged again further up.
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
