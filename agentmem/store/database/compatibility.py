"""
Which revisions of the tables this code can use: its own, and newer ones that say so.

A migration states whether code of the revision before may still use the tables (see
``migrations/README.md``). The database keeps the oldest revision whose code may, so that code that
has never heard of a migration can decide.
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
)
"""All migrations, oldest first. Kept here so that opening a database does not parse them."""

VERSION_TABLE: Final = "alembic_version"
COMPATIBILITY_TABLE: Final = "compatibility"

_VERSIONS: Final = text(f"SELECT version_num FROM {VERSION_TABLE}")  # noqa: S608 - a constant
_OLDEST: Final = text(f"SELECT oldest FROM {COMPATIBILITY_TABLE}")  # noqa: S608 - a constant
_CHANGES: Final = "PRAGMA schema_version"
_LOOK_AGAIN_S: Final = 1.0


def head() -> str:
    """Name the revision that this package reads and writes."""
    return REVISIONS[-1]


def revisions() -> tuple[str, ...]:
    """Name all revisions that this package knows, oldest first."""
    return REVISIONS


def is_newer(found: str | None) -> bool:
    """Whether a database is at a later revision than this package knows; they are numbered."""
    return found is not None and found.isdecimal() and int(found) > int(head())


def stamped(connection: Connection) -> str | None:
    """Read the revision that a database with a version table is at; None if it has no tables."""
    return ", ".join(sorted(map(str, connection.scalars(_VERSIONS)))) or None


def oldest_code(connection: Connection) -> str | None:
    """Read the oldest revision whose code may use the tables; None where that is not kept."""
    if not connection.dialect.has_table(connection, COMPATIBILITY_TABLE):
        return None
    return ", ".join(sorted(map(str, connection.scalars(_OLDEST)))) or None


def require_known(connection: Connection, found: str) -> None:
    """
    Pass a revision of this package, and a newer one whose tables its code may use.

    Raises:
        SchemaVersionError: it is newer, and made for newer code alone.
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
    Pass the revision of this package, and a newer one whose tables its code may use.

    Raises:
        SchemaVersionError: it is older, or newer and made for newer code alone.
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
    Notices that another process has migrated the tables while the database is open.

    SQLite counts its changes, which each transaction looks at. PostgreSQL is asked once in a
    second, and when a statement has failed.
    """

    def __init__(self) -> None:
        self._seen: int | None = None
        self._looked_at = float("-inf")

    def look_again(self) -> None:
        """Look at the next transaction, whatever was seen."""
        self._seen, self._looked_at = None, float("-inf")

    def check(self, connection: Connection) -> None:
        """
        Pass where this code may use the tables as they are; called in a transaction.

        Raises:
            SchemaVersionError: they were migrated to what it cannot use.
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
    """Return SQLite's number of changes of the tables; None where it cannot be read."""
    # Through SQLAlchemy it would take half as long again as an empty transaction.
    driver = connection.connection.driver_connection
    try:
        (number,) = driver.execute(_CHANGES).fetchone()  # type: ignore[union-attr]  # it is sqlite3's
    except sqlite3.Error:
        return None
    return int(number)
