"""
New SQLite databases get their tables in 3 ms here: all migrations take 50, in most of the tests.

What they leave in an empty database is kept as SQL once a process.
`tests/store/database/test_migrate.py` runs the migrations themselves, and shows that the SQL makes
the same database.
"""

from functools import cache

from sqlalchemy import Connection, create_engine, inspect

from agentmem.store.database import alembic_runner

migrated = alembic_runner.move


def move(connection: Connection, revision: str, direction: str) -> None:
    """Make the newest tables by their SQL in an empty SQLite database; else migrate."""
    is_new = direction == "upgrade" and revision == "head" and connection.dialect.name == "sqlite"
    if not is_new or inspect(connection).get_table_names():
        migrated(connection, revision, direction)
        return
    for statement in newest_tables():
        connection.exec_driver_sql(statement)


@cache
def newest_tables() -> tuple[str, ...]:
    """Return the SQL of the database that the migrations make: its tables, indexes and rows."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        migrated(connection, "head", "upgrade")
        dump = tuple(connection.connection.driver_connection.iterdump())
    engine.dispose()
    return tuple(line for line in dump if line not in {"BEGIN TRANSACTION;", "COMMIT;"})
