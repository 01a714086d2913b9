"""
The revision of a database: find it out, move it, or refuse to touch it.

A database belongs to agentmem alone. One that holds tables of something else is refused: names
like ``session`` are too common to share. On PostgreSQL a schema of its own is enough
(``?options=-csearch_path%3Dagentmem``).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import URL, Connection, inspect, text

from agentmem.errors import SchemaVersionError
from agentmem.store.engine import bare_engine, is_memory, parse_url, place_of
from agentmem.store.failures import translated

T = TypeVar("T")

_LOCK: Final = 0x6167656E746D656D  # "agentmem"
_VERSION_TABLE: Final = "alembic_version"


def head() -> str:
    """Name the revision that this package reads and writes."""
    revision = ScriptDirectory.from_config(_config()).get_current_head()
    assert revision is not None, "the package has no migrations"
    return revision


def revisions() -> tuple[str, ...]:
    """Name all revisions that this package knows, newest first."""
    scripts = ScriptDirectory.from_config(_config()).walk_revisions()
    return tuple(script.revision for script in scripts)


def current(url: str) -> str | None:
    """
    Find out at which revision the database is; None when it is empty. It is left as it was.

    Raises:
        SchemaVersionError: it holds the tables of something else.
        StoreError: it cannot be opened.
    """
    return _on_bare_connection(parse_url(url), _revision)


def upgrade(url: str, revision: str = "head") -> str:
    """
    Bring the database to *revision* and name where it is now. All or nothing.

    Two processes may do this at once: the second one waits, and finds nothing left to do.

    Raises:
        SchemaVersionError: it is newer than this package, or holds the tables of something else.
        StoreError: it cannot be opened.
    """
    return _migrate(parse_url(url), revision, command.upgrade)


def downgrade(url: str, revision: str) -> str | None:
    """
    Take the database back to *revision*, or to nothing with ``base``. All or nothing.

    Raises:
        SchemaVersionError: as for `upgrade`, or no such revision lies behind.
        StoreError: it cannot be opened.
    """
    _migrate(parse_url(url), revision, command.downgrade)
    return current(url)


def ensure_current(url: URL) -> None:
    """
    Create the tables in an empty database; refuse any other that is not at `head()`.

    Raises:
        SchemaVersionError: the database is older or newer, or of something else.
        StoreError: it cannot be opened.
    """
    found = _on_bare_connection(url, _revision)
    expected = head()
    if found is None:
        _migrate(url, "head", command.upgrade)
    elif found != expected:
        raise SchemaVersionError(
            f"the database {place_of(url)} is at revision {found} and this agentmem needs "
            f"{expected}: run `agentmem db upgrade --url {place_of(url)}`",
            found=found,
            expected=expected,
        )


def create_tables(connection: Connection) -> None:
    """Build the newest schema over an open connection: for a database in memory."""
    command.upgrade(_config(connection), "head")


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    # The folder is read as a ConfigParser value, in which a percent sign begins a reference.
    config.set_main_option("script_location", str(_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _folder() -> Path:
    """Find the migrations: inside an installed package, beside the package in a checkout."""
    package = Path(__file__).parent.parent
    packed = package / "migrations"
    return packed if packed.is_dir() else package.parent / "migrations"


def _on_bare_connection(url: URL, work: Callable[[Connection], T]) -> T:
    engine = bare_engine(url)
    try:
        with translated(place_of(url)), engine.connect() as connection:
            return work(connection)
    finally:
        engine.dispose()


def _migrate(url: URL, revision: str, step: Callable[[Config, str], None]) -> str:
    assert not is_memory(url), "a database in memory ends with its connection"
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
            try:
                step(_config(connection), revision)
            except CommandError as error:
                raise SchemaVersionError(
                    f"cannot bring {place_of(url)} to revision {revision!r}: {error}",
                    found=_revision(connection),
                    expected=head(),
                ) from error
            return _revision(connection) or "base"
    finally:
        engine.dispose()


def _revision(connection: Connection) -> str | None:
    """Read the revision, and make sure that it is one of ours."""
    place = place_of(connection.engine.url)
    tables = set(inspect(connection).get_table_names())
    if tables and _VERSION_TABLE not in tables:
        raise SchemaVersionError(
            f"the database {place} holds the tables of something else "
            f"({', '.join(sorted(tables)[:5])}): give agentmem a database of its own",
            found=None,
            expected=head(),
        )
    found = MigrationContext.configure(connection).get_current_revision() if tables else None
    if found is not None and found not in revisions():
        raise SchemaVersionError(
            f"the database {place} is at revision {found}, which this agentmem does not know "
            f"(its newest is {head()}): install a newer agentmem; nothing was changed",
            found=found,
            expected=head(),
        )
    return found
