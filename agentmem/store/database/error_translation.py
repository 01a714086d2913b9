"""The one place where a database's errors become ours, so that none escapes as it is."""

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
    """Return *url* without its password, also when it is not a URL at all."""
    without = re.sub(r"(://[^:/@]*:).*@", r"\1***@", url)
    return re.sub(r"(?i)(password=)[^&]*", r"\1***", without)


def one_line(error: BaseException) -> str:
    """Return what the driver said, on one line and without SQLAlchemy's own additions."""
    text = str(getattr(error, "orig", None) or error)
    return " ".join(mask(text).split())


def is_transient(error: exc.DBAPIError) -> bool:
    """
    Return whether the same work may succeed if it is done again.

    That holds for a lock that did not come, for a connection that broke, and for a row that
    was deleted after it was looked up: doing it again finds that out. It does not hold for a
    commit that broke: `Database.write` looks at that case itself.
    """
    if _code(error) == _POSTGRES_TIMED_OUT:
        return False
    is_lost = _code(error) == _POSTGRES_GONE or is_unprepared(error) or is_stale_plan(error)
    return error.connection_invalidated or _is_busy(error) or is_lost


def is_unprepared(error: exc.DBAPIError) -> bool:
    """Whether a prepared statement was not the one of this client: the session is shared."""
    return _code(error) in _POSTGRES_UNPREPARED


def is_stale_plan(error: exc.DBAPIError) -> bool:
    """Whether a prepared statement would return columns of other types since a migration."""
    return _code(error) == _POSTGRES_UNSUPPORTED and "cached plan" in str(error.orig)


def translate(error: exc.SQLAlchemyError, place: str) -> StoreError:
    """Choose our error for one of SQLAlchemy's; *place* is the URL without its password."""
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
