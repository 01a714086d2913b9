"""Translate database errors to `StoreError`."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import exc

from agentmem.errors import DatabaseBusyError, DatabaseUrlError, StoreError

_SQLITE_BUSY: Final = {5, 6}
_SQLITE_NO_DATABASE: Final = {14, 26}
_HINTS: Final[dict[int | str | None, str]] = {
    8: "it cannot be written: check the permissions of the file and its folder",
    10: "the disk reports an I/O error",
    11: "the file is corrupt: restore it from a backup",
    13: "the disk is full: nothing was stored",
    "53100": "the disk is full: nothing was stored",
    "25006": "it is read-only: open it with read_only=True",
}
_POSTGRES_BUSY: Final = {"40001", "40P01", "55P03", "57014"}
_POSTGRES_GONE: Final = "23503"
_POSTGRES_UNPREPARED: Final = {"26000", "42P05"}
_POSTGRES_TIMED_OUT: Final = "57014"
_POSTGRES_UNSUPPORTED: Final = "0A000"
_POSTGRES_NO_DATABASE: Final = {"3D000", "28P01", "28000"}


def mask(url: str) -> str:
    """Return *url* without its password, also if it is not a valid URL."""
    without = re.sub(r"(://[^:/@]*:).*@", r"\1***@", url)
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", without)


def one_line(error: BaseException) -> str:
    """Return the driver's message on one line, without SQLAlchemy's additions."""
    text = str(getattr(error, "orig", None) or error)
    return " ".join(mask(text).split())


def is_transient(error: exc.DBAPIError) -> bool:
    """
    Return whether a retry may succeed.

    It may after a lock timeout, a lost connection, and the concurrent deletion of a row, which
    the retry detects. Not after a failed commit, which `Database.write` handles.
    """
    if _code(error) == _POSTGRES_TIMED_OUT:
        return False
    is_lost = _code(error) == _POSTGRES_GONE or is_unprepared(error) or is_stale_plan(error)
    return error.connection_invalidated or _is_busy(error) or is_lost


def is_unprepared(error: exc.DBAPIError) -> bool:
    """Whether a prepared statement was another client's: the server session is shared."""
    return _code(error) in _POSTGRES_UNPREPARED


def is_stale_plan(error: exc.DBAPIError) -> bool:
    """Whether a prepared statement is stale since a migration changed its column types."""
    return _code(error) == _POSTGRES_UNSUPPORTED and "cached plan" in str(error.orig)


def translate(error: exc.SQLAlchemyError, place: str) -> StoreError:
    """Translate an error of SQLAlchemy; *place* is the URL without its password."""
    said = one_line(error)
    if isinstance(error, exc.TimeoutError):
        return DatabaseBusyError(
            f"all connections to {place} are in use: {said}; try again, or use fewer threads"
        )
    if not isinstance(error, exc.DBAPIError):
        return StoreError(f"{place}: {said}")
    code = _code(error)
    if _is_busy(error):
        if code == _POSTGRES_TIMED_OUT:
            what = "cancelled a statement (timeout or user request)"
        else:
            what = "is locked by another writer"
        return DatabaseBusyError(f"{place} {what}: {said}; try again")
    if code in _SQLITE_NO_DATABASE or code in _POSTGRES_NO_DATABASE:
        return DatabaseUrlError(f"cannot open the database {place}: {said}")
    # psycopg has no error code where there was no server.
    is_unreachable = code is None and isinstance(error, exc.OperationalError)
    if error.connection_invalidated or is_unreachable:
        return StoreError(f"cannot reach the database {place}: {said}")
    hint = f": {_HINTS[code]}" if code in _HINTS else ""
    return StoreError(f"{place}: {said}{hint}")


@contextmanager
def translate_db_errors(place: str) -> Iterator[None]:
    """Translate errors of the database that leave the block."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        raise translate(error, place) from error


def _code(error: exc.DBAPIError) -> int | str | None:
    """Return SQLite's primary result code or PostgreSQL's SQLSTATE."""
    extended = getattr(error.orig, "sqlite_errorcode", None)
    if extended is not None:
        return int(extended) & 0xFF
    state: str | None = getattr(error.orig, "sqlstate", None)
    return state


def _is_busy(error: exc.DBAPIError) -> bool:
    code = _code(error)
    return code in _SQLITE_BUSY or code in _POSTGRES_BUSY
