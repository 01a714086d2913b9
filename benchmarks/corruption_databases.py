"""The databases of the corruption sweep: a clean one, copies of it, and how a row is damaged."""

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
from corruption_calls import fill
from sqlalchemy import Column, LargeBinary, MetaData, Table, Text, make_url

from agentmem.store.database.schema import Base, UtcDateTime

ROW = "*"
"""In the place of a column: the row as a whole."""
GONE = object()
"""In the place of a value: the row is deleted."""

NUMBERS = {"negative": -7, "huge": 2**62, "text": "abc", "fraction": 2.5, "blob": b"\xff\xfe"}
TEXTS = {
    "empty": "",
    "cut": '{"a": [1, "b',
    "list": "[1, 2]",
    "number": 7,
    "blob": b"\xff\xfe",
    "not utf-8": "CAST(x'C3286869' AS TEXT)",
    "surrogate": '["\\ud800"]',
    "unknown": "unheard-of",
    "huge": "x" * 100_000,
    "deep": "[" * 5_000,
}
JSON = {
    "null": "null",
    "object": '{"type": 1, "runs": 7}',
    "other types": '[{"type": "text", "text": 7}]',
    "lists": '[["a", "b", {"c": 1}], ["d"]]',
    "no number": "[NaN, 1e999, -1]",
    "long run": '{"runs": "99999999999999999999h 3s9", "of": [1]}',
    "digest": '{"position": 3, "left": 7, "added": {"a": 1}, "removed": [[1]]}',
    "run": "1-99999999999999999999:5 9-3",
}
"""Beside `TEXTS`, for the columns that hold something written in a text."""
WRITTEN = {"parts", "tool_calls", "layout", "tokens_by_tier", "pins", "content", "ranges"}
MOMENTS = {"words": "yesterday", "number": 5, "empty": "", "far": "9999-99-99 99:99:99.000000"}
BLOBS = {"empty": b"", "odd": b"\x01\x02\x03", "text": "abc", "number": 2**40}
POSTGRES_MOMENTS = {"forever": "infinity", "never": "-infinity", "before": "4000-01-01 BC"}
_ONLY_SQLITE = {"text", "fraction", "blob", "not utf-8", "number"}

# ruff: noqa: S608 - the names in the statements are those of the package's own schema


def damages(column: Column[Any], *, postgres: bool = False) -> Iterator[tuple[str, object]]:
    """List the kinds of damage that fit the type of a column."""
    kinds: dict[str, Any] = NUMBERS
    if isinstance(column.type, UtcDateTime):
        kinds = POSTGRES_MOMENTS if postgres else MOMENTS
    elif isinstance(column.type, LargeBinary):
        kinds = BLOBS
    elif isinstance(column.type, Text):
        kinds = TEXTS | (JSON if column.name in WRITTEN else {})
    yield from (item for item in kinds.items() if not (postgres and item[0] in _ONLY_SQLITE))
    if column.nullable:
        yield "null", None
    if column.foreign_keys:
        yield "nowhere", 987_654


def rows_clause(table: Table) -> str:
    """Return the SQL condition of the rows of the session to be damaged, or of its user."""
    hurt = "SELECT id FROM session WHERE key = 'hurt'"
    branches = f"SELECT id FROM branch WHERE session_id IN ({hurt})"
    tests = {
        "branch_id": f"branch_id IN ({branches})",
        "session_id": f"session_id IN ({hurt})",
        "assembly_id": f"assembly_id IN (SELECT id FROM assembly WHERE branch_id IN ({branches}))",
        "message_id": f"message_id IN (SELECT id FROM message WHERE branch_id IN ({branches}))",
        "pin_id": f"pin_id IN (SELECT id FROM pin WHERE session_id IN ({hurt}))",
    }
    special = {
        "session": f"id IN ({hurt})",
        "owner": f"id IN (SELECT owner_id FROM session WHERE id IN ({hurt}))",
        "user_event": f"owner_id IN (SELECT owner_id FROM session WHERE id IN ({hurt}))",
        "pin": f"session_id IN ({hurt})",
    }
    if table.name in special:
        return special[table.name]
    return next((text for name, text in tests.items() if name in table.columns), "1 = 1")


class Sqlite:
    """A database file and copies of it."""

    is_postgres = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clean = folder / "clean.db"
        self._copy = folder / "copy.db"

    def fill(self) -> None:
        """Make the clean database."""
        fill(f"sqlite:///{self.clean}")

    def fresh(self) -> str:
        """Copy the clean database, and return the URL of the copy."""
        for old in self.folder.glob("copy.db*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copy(self.clean, self._copy)
        return f"sqlite:///{self._copy}"

    def tables(self) -> list[str]:
        """List the tables that are in the database."""
        connection = sqlite3.connect(self.clean)
        names = "SELECT name FROM sqlite_master WHERE type = 'table'"
        found = [name for (name,) in connection.execute(names)]
        connection.close()
        return [name for name in found if not name.startswith("sqlite_")]

    def rows(self, table: Table) -> list[Any]:
        """List the rows of the damaged session."""
        connection = sqlite3.connect(self.clean)
        chosen = f'SELECT rowid FROM "{table.name}" WHERE {rows_clause(table)} ORDER BY rowid'
        found = [row for (row,) in connection.execute(chosen)]
        connection.close()
        return found

    def damage(self, table: Table, column: str, row: Any, value: object) -> bool:
        """Write *value* in the copy, behind the package's back; whether the database took it."""
        connection = sqlite3.connect(self._copy)
        is_expression = isinstance(value, str) and value.startswith("CAST(")
        place = value if is_expression else "?"
        given = [row] if is_expression else [value, row]
        statement = f'UPDATE "{table.name}" SET "{column}" = {place} WHERE rowid = ?'
        if value is GONE:
            statement, given = f'DELETE FROM "{table.name}" WHERE rowid = ?', [row]
        try:
            with connection:
                connection.execute("PRAGMA ignore_check_constraints = ON")
                return connection.execute(statement, given).rowcount == 1
        except sqlite3.Error:
            return False
        finally:
            connection.close()


class Postgres:
    """A database of a server, and copies of it; the URL must be that of a superuser."""

    is_postgres = True

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self._url = url

    def fill(self) -> None:
        """Make the clean database."""
        self._admin(
            "DROP DATABASE IF EXISTS sweep_clean WITH (FORCE)", "CREATE DATABASE sweep_clean"
        )
        fill(self._of("sweep_clean"))

    def fresh(self) -> str:
        """Copy the clean database, and return the URL of the copy."""
        self._admin(
            "DROP DATABASE IF EXISTS sweep_copy WITH (FORCE)",
            "CREATE DATABASE sweep_copy TEMPLATE sweep_clean STRATEGY file_copy",
        )
        return self._of("sweep_copy")

    def tables(self) -> list[str]:
        """List the tables that are in the database."""
        names = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        return [name for (name,) in self._run("sweep_clean", names)]

    def rows(self, table: Table) -> list[Any]:
        """List the rows of the damaged session."""
        chosen = f'SELECT ctid::text FROM "{table.name}" WHERE {rows_clause(table)} ORDER BY ctid'
        return [row for (row,) in self._run("sweep_clean", chosen)]

    def damage(self, table: Table, column: str, row: Any, value: object) -> bool:
        """Write *value* in the copy, behind the package's back; whether the database took it."""
        statement = f'UPDATE "{table.name}" SET "{column}" = %s WHERE ctid = %s::tid'
        given = [value, row]
        if value is GONE:
            statement, given = f'DELETE FROM "{table.name}" WHERE ctid = %s::tid', [row]
        try:
            with psycopg.connect(self._of("sweep_copy")) as connection:
                # No foreign key is looked at.
                connection.execute("SET session_replication_role = replica")
                return connection.execute(statement, given).rowcount == 1
        except psycopg.Error:
            return False

    def _of(self, name: str) -> str:
        found = make_url(self._url).set(database=name)
        return found.render_as_string(hide_password=False)

    def _admin(self, *statements: str) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def _run(self, name: str, statement: str) -> list[Any]:
        with psycopg.connect(self._of(name)) as connection:
            return connection.execute(statement).fetchall()


def schema_tables() -> dict[str, Table]:
    """Return the tables of the schema, and the one that holds its version."""
    version = Table("alembic_version", MetaData(), Column("version_num", Text()))
    return {table.name: table for table in (*Base.metadata.sorted_tables, version)}
