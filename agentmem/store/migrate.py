"""
The revision of a database: find it out, move it, or refuse to touch it.

Only moving it loads Alembic, which takes as long to load as half of everything else.

A database belongs to agentmem alone. One that holds tables of something else is refused: names
like ``session`` are too common to share. On PostgreSQL a schema of its own is enough
(``?options=-csearch_path%3Dagentmem``).
"""

from pathlib import Path
from typing import Final, Literal

from sqlalchemy import URL, Connection, inspect, text

from agentmem.errors import DatabaseUrlError, SchemaVersionError
from agentmem.store.engine import bare_engine
from agentmem.store.failures import one_line, translated
from agentmem.store.sqlite import ReadOnlyFile, check_writable, create_private, has_content
from agentmem.store.urls import is_file, is_memory, parse_url, place_of

REVISIONS: Final = (
    "0001",
    "0002",
    "0003",
    "0004",
    "0005",
    "0006",
    "0007",
    "0008",
    "0009",
    "0010",
    "0011",
)
"""All migrations, oldest first. Kept here so that opening a database does not parse them."""

_LOCK: Final = 0x6167656E746D656D  # "agentmem"
_VERSION_TABLE: Final = "alembic_version"
_VERSIONS: Final = text("SELECT version_num FROM alembic_version")

Direction = Literal["upgrade", "downgrade"]


def head() -> str:
    """Name the revision that this package reads and writes."""
    return REVISIONS[-1]


def revisions() -> tuple[str, ...]:
    """Name all revisions that this package knows, oldest first."""
    return REVISIONS


def current(url: str) -> str | None:
    """
    Find out at which revision the database is; None when it is empty. It is left as it was.

    Raises:
        SchemaVersionError: it holds the tables of something else.
        DatabaseUrlError: it is one in memory.
        StoreError: it cannot be opened.
    """
    return _look(_lasting(url))


def exists(url: str) -> bool:
    """Whether there is a database to be looked at: a file that is not empty, or a server's."""
    parsed = _lasting(url)
    return not is_file(parsed) or has_content(Path(parsed.database or ""))


def upgrade(url: str, revision: str = "head") -> str:
    """
    Bring the database to *revision* and name where it is now. All or nothing.

    Two processes may do this at once: the second one waits, and finds nothing left to do.

    Raises:
        SchemaVersionError: it is newer than this package, or holds the tables of something else.
        DatabaseUrlError: it is one in memory.
        StoreError: it cannot be opened.
    """
    return _migrate(_lasting(url), revision, "upgrade")


def downgrade(url: str, revision: str) -> str | None:
    """
    Take the database back to *revision*, or to nothing with ``base``. All or nothing.

    Raises:
        SchemaVersionError: as for `upgrade`, or no such revision lies behind.
        StoreError: it cannot be opened.
    """
    _migrate(_lasting(url), revision, "downgrade")
    return current(url)


def ensure_current(url: URL, *, create: bool = True) -> None:
    """
    Create the tables in an empty database; refuse any other that is not at `head()`.

    Raises:
        DatabaseUrlError: there is no database, and none is to be created.
        SchemaVersionError: the database is older or newer, or of something else.
        StoreError: it cannot be opened.
    """
    expected = head()
    found = _look(url)
    if found is None:
        if not create:
            raise DatabaseUrlError(f"there is no database of agentmem at {place_of(url)}")
        _migrate(url, "head", "upgrade")
    elif found != expected:
        raise SchemaVersionError(
            f"the database {place_of(url)} is at revision {found} and this agentmem needs "
            f"{expected}: run `agentmem db upgrade --database {place_of(url)}`",
            found=found,
            expected=expected,
        )


def _lasting(text: str) -> URL:
    url = parse_url(text)
    if is_memory(url):
        raise DatabaseUrlError(
            "a database in memory ends with its connection: there is nothing to upgrade"
        )
    return url


def create_tables(connection: Connection) -> None:
    """Build the newest schema over an open connection: for a database in memory."""
    _step(connection, "head", "upgrade")


def _step(connection: Connection, revision: str, direction: Direction) -> None:
    from agentmem.store.alembic_runner import CommandError, move  # noqa: PLC0415 - loads Alembic

    try:
        move(connection, revision, direction)
    except CommandError as error:
        place = place_of(connection.engine.url)
        raise SchemaVersionError(
            f"cannot {direction} {place} to revision {revision!r}: {one_line(error)}",
            found=_revision(connection),
            expected=head(),
        ) from error


def _look(url: URL) -> str | None:
    path = Path(url.database or "")
    # A file is not made for being looked for.
    if is_file(url) and not has_content(path):
        return None
    reader = ReadOnlyFile(path) if is_file(url) else None
    try:
        with translated(place_of(url)):
            engine = bare_engine(url, reader=reader)
            with engine.connect() as connection:
                return _revision(connection)
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
            translated(place_of(url)),
            engine.connect().execution_options(agentmem_write=True) as connection,
            connection.begin(),
        ):
            if connection.dialect.name == "postgresql":
                connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            # Asked again under the lock: another process may have been first.
            _revision(connection)
            _step(connection, revision, direction)
            return _revision(connection) or "base"
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    """Read the revision, and make sure that it is one of ours."""
    place = place_of(connection.engine.url)
    tables = set(inspect(connection).get_table_names())
    rows = sorted(connection.scalars(_VERSIONS)) if _VERSION_TABLE in tables else []
    others = sorted(tables - {_VERSION_TABLE})
    # The way back to nothing leaves the table of the revision, without one.
    if others and not rows:
        raise SchemaVersionError(
            f"the database {place} holds the tables of something else "
            f"({', '.join(others[:5])}): give agentmem a database of its own",
            found=None,
            expected=head(),
        )
    found = ", ".join(rows) or None
    if found is not None and found not in REVISIONS:
        raise SchemaVersionError(
            f"the database {place} is at revision {found}, which this agentmem does not know "
            f"(its newest is {head()}): install a newer agentmem; nothing was changed",
            found=found,
            expected=head(),
        )
    return found
