"""
The schema revision of a database: read, migrate, or reject.

Only a migration loads Alembic, which takes half as long to load as everything else.

A database must be agentmem's alone. One with tables of another program is rejected: names like
``session`` are too common. On PostgreSQL a separate schema is enough
(``?options=-csearch_path%3Dagentmem``).
"""

import logging
import time
from pathlib import Path
from typing import Final, Literal

from sqlalchemy import URL, Connection, inspect, text

from agentmem.errors import DatabaseUrlError, SchemaVersionError
from agentmem.machine.logs import log
from agentmem.store.database.compatibility import (
    REVISIONS,
    VERSION_TABLE,
    head,
    is_newer,
    require_known,
    require_usable,
    revisions,
    stamped,
)
from agentmem.store.database.database import bare_engine
from agentmem.store.database.error_translation import one_line, translate_db_errors
from agentmem.store.database.sqlite import ReadOnlyFile, check_writable, create_private, has_content
from agentmem.store.database.urls import is_file, is_memory, parse_url, place_of

_LOCK: Final = 0x6167656E746D656D  # "agentmem"
__all__ = [
    "REVISIONS",
    "create_tables",
    "current",
    "downgrade",
    "ensure_current",
    "exists",
    "head",
    "revisions",
    "upgrade",
]

_log = logging.getLogger(__name__)

Direction = Literal["upgrade", "downgrade"]


def current(url: str) -> str | None:
    """
    Return the revision of the database; None when it is empty. Read-only.

    Raises:
        SchemaVersionError: it has tables of another program.
        DatabaseUrlError: it is in memory.
        StoreError: it cannot be opened.
    """
    return _look(_lasting(url))


def exists(url: str) -> bool:
    """Whether the database exists: a non-empty file, or on a server."""
    parsed = _lasting(url)
    return not is_file(parsed) or has_content(Path(parsed.database or ""))


def upgrade(url: str, revision: str = "head") -> str:
    """
    Upgrade the database to *revision* and return the new revision. Atomic.

    Safe for concurrent processes: the second one waits, and finds nothing to do.

    Raises:
        SchemaVersionError: it is newer than this package, or has tables of another program.
        DatabaseUrlError: it is one in memory.
        StoreError: it cannot be opened.
    """
    return _migrate(_lasting(url), revision, "upgrade")


def downgrade(url: str, revision: str) -> str | None:
    """
    Downgrade the database to *revision*, or to no tables with ``base``. Atomic.

    Raises:
        SchemaVersionError: as for `upgrade`, or the revision is not an older one.
        StoreError: it cannot be opened.
    """
    _migrate(_lasting(url), revision, "downgrade")
    return current(url)


def ensure_current(url: URL, *, create: bool = True) -> None:
    """
    Create the tables in an empty database; reject any other that is incompatible.

    Raises:
        DatabaseUrlError: the database does not exist, and may not be created.
        SchemaVersionError: the database is older or newer, or another program's.
        StoreError: it cannot be opened.
    """
    found = _look(url, for_use=True)
    if found is None:
        if not create:
            raise DatabaseUrlError(f"there is no agentmem database at {place_of(url)}")
        _migrate(url, "head", "upgrade")


def _lasting(text: str) -> URL:
    url = parse_url(text)
    if is_memory(url):
        raise DatabaseUrlError(
            "an in-memory database ends with its connection: there is nothing to upgrade"
        )
    return url


def create_tables(connection: Connection) -> None:
    """Create the newest schema on an open connection, for an in-memory database."""
    _step(connection, "head", "upgrade")


def _step(connection: Connection, revision: str, direction: Direction) -> None:
    from agentmem.store.database.alembic_runner import CommandError, move  # noqa: PLC0415 - loads Alembic

    try:
        move(connection, revision, direction)
    except CommandError as error:
        place = place_of(connection.engine.url)
        raise SchemaVersionError(
            f"cannot {direction} {place} to revision {revision!r}: {one_line(error)}",
            found=_revision(connection),
            expected=head(),
        ) from error


def _look(url: URL, *, for_use: bool = False) -> str | None:
    path = Path(url.database or "")
    # A check must not create the file.
    if is_file(url) and not has_content(path):
        return None
    reader = ReadOnlyFile(path) if is_file(url) else None
    try:
        with translate_db_errors(place_of(url)):
            engine = bare_engine(url, reader=reader)
            with engine.connect() as connection:
                found = _revision(connection)
                if for_use and found is not None:
                    require_usable(connection, found)
                return found
    finally:
        if reader is not None:
            reader.close()


def _migrate(url: URL, revision: str, direction: Direction) -> str:
    if is_file(url):
        check_writable(Path(url.database or ""))
        create_private(Path(url.database or ""))
    engine = bare_engine(url)
    try:
        with (
            translate_db_errors(place_of(url)),
            engine.connect().execution_options(agentmem_write=True) as connection,
            connection.begin(),
        ):
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            # Checked again under the lock: another process may have been first.
            started = time.monotonic()
            found = _revision(connection)
            if direction == "upgrade" and revision == "head" and is_newer(found):
                return str(found)
            _step(connection, revision, direction)
            reached = _revision(connection) or "base"
        if reached != found:
            log(
                _log,
                logging.INFO,
                "schema_migrated",
                "{place} was migrated from revision {before} to {after}",
                place=place_of(url),
                before=found,
                after=reached,
                seconds=time.monotonic() - started,
            )
        return reached
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    """Read the revision, and check that it is one of ours."""
    place = place_of(connection.engine.url)
    tables = set(inspect(connection).get_table_names())
    found = stamped(connection) if VERSION_TABLE in tables else None
    others = sorted(tables - {VERSION_TABLE})
    # The downgrade to base leaves an empty version table.
    if others and found is None:
        raise SchemaVersionError(
            f"the database {place} has tables of another program "
            f"({', '.join(others[:5])}): give agentmem a separate database",
            found=None,
            expected=head(),
        )
    if found is not None:
        require_known(connection, found)
    return found
