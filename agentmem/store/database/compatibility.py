"""
The schema revisions that this code can use: its own, and newer compatible ones.

A migration declares whether code of the previous revision may still use the tables (see
``migrations/README.md``). The database stores the oldest compatible revision, so that code without
a migration can decide.
"""

import sqlite3
import time
from typing import Final

from sqlalchemy import Connection, text

from agentmem.errors import SchemaVersionError
from agentmem.store.database.urls import place_of

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
    "0012",
    "0013",
    "0014",
    "0015",
)
"""All migrations, oldest first. Listed here so that opening a database does not parse them."""

VERSION_TABLE: Final = "alembic_version"
COMPATIBILITY_TABLE: Final = "compatibility"

_VERSIONS: Final = text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
_OLDEST: Final = text(f"SELECT oldest FROM {COMPATIBILITY_TABLE}")  # noqa: S608 - a constant
_CHANGES: Final = "PRAGMA schema_version"
_LOOK_AGAIN_S: Final = 1.0


def head() -> str:
    """Return the revision of this package."""
    return REVISIONS[-1]


def revisions() -> tuple[str, ...]:
    """Return all known revisions, oldest first."""
    return REVISIONS


def is_newer(found: str | None) -> bool:
    """Whether a revision is later than all known ones; they are numbered."""
    return found is not None and found.isdecimal() and int(found) > int(head())


def stamped(connection: Connection) -> str | None:
    """Read the revision of a database with a version table; None without tables."""
    return ", ".join(sorted(map(str, connection.scalars(_VERSIONS)))) or None


def oldest_code(connection: Connection) -> str | None:
    """Read the oldest compatible revision; None where it is not stored."""
    if not connection.dialect.has_table(connection, COMPATIBILITY_TABLE):
        return None
    return ", ".join(sorted(map(str, connection.scalars(_OLDEST)))) or None


def require_known(connection: Connection, found: str) -> None:
    """
    Accept known revisions, and newer compatible ones.

    Raises:
        SchemaVersionError: it is newer, and incompatible.
    """
    if found in REVISIONS:
        return
    oldest = oldest_code(connection) if is_newer(found) else None
    if oldest in REVISIONS:
        return
    needs = "which is unknown" if oldest is None else f"which needs code of {oldest} or later"
    raise SchemaVersionError(
        f"the database {place_of(connection.engine.url)} is at revision {found}, {needs}, and this "
        f"agentmem supports {head()}: install a newer agentmem, or with that one run "
        f"`agentmem db downgrade {head()}`; nothing was changed",
        found=found,
        expected=head(),
    )


def require_usable(connection: Connection, found: str) -> None:
    """
    Accept the revision of this package, and newer compatible ones.

    Raises:
        SchemaVersionError: it is older, or newer and incompatible.
    """
    require_known(connection, found)
    if found in REVISIONS[:-1]:
        place = place_of(connection.engine.url)
        raise SchemaVersionError(
            f"the database {place} is at revision {found} and this agentmem needs {head()}: run "
            f"`agentmem db upgrade --database {place}`",
            found=found,
            expected=head(),
        )


class SchemaWatch:
    """
    Detects migrations by other processes while the database is open.

    SQLite has a schema counter, which each transaction checks. PostgreSQL is queried once per
    second, and after a failed statement.
    """

    def __init__(self) -> None:
        self._seen: int | None = None
        self._looked_at = float("-inf")

    def look_again(self) -> None:
        """Force a check in the next transaction."""
        self._seen, self._looked_at = None, float("-inf")

    def check(self, connection: Connection) -> None:
        """
        Check that this code may use the current tables; called in a transaction.

        Raises:
            SchemaVersionError: they were migrated to an incompatible revision.
        """
        seen, now = None, time.monotonic()
        if connection.dialect.name == "sqlite":
            seen = _changes(connection)
            if seen is not None and seen == self._seen:
                return
        elif now - self._looked_at < _LOOK_AGAIN_S:
            return
        found = stamped(connection)
        if found is not None:
            require_usable(connection, found)
        self._seen, self._looked_at = seen, now


def _changes(connection: Connection) -> int | None:
    """Return SQLite's schema counter; None where it cannot be read."""
    # With SQLAlchemy it would take half the time of an empty transaction.
    driver = connection.connection.driver_connection
    try:
        (number,) = driver.execute(_CHANGES).fetchone()  # type: ignore[union-attr]  # it is sqlite3's
    except sqlite3.Error:
        return None
    return int(number)
