"""
Where Alembic enters: on the caller's connection, or from its own command line in a checkout.

    alembic -x url=sqlite:///agent.db check
"""

from alembic import context
from sqlalchemy import Connection, create_engine, delete, insert

from agentmem.store.database.compatibility import COMPATIBILITY_TABLE, stamped
from agentmem.store.database.schema import Base, CompatibilityRow, add_postgres_options
from agentmem.store.vectors.pgvector import PREFIX


def is_ours(name, kind, _parents):
    """Leave out the tables that are made when they are needed, and belong to no revision."""
    return not (kind == "table" and name.startswith(PREFIX))


def migrate(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        add_postgres_options()
    # SQLite cannot alter a table: batch mode copies it. Its DDL rolls back too, as BEGIN is ours.
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        compare_type=True,
        include_name=is_ours,
        transactional_ddl=True,
    )
    with context.begin_transaction():
        context.run_migrations()
        keep_oldest_code(connection)


def keep_oldest_code(connection: Connection) -> None:
    """Keep the oldest revision whose code may use the tables: the newest that breaks older code."""
    here = stamped(connection)
    if here is None or not connection.dialect.has_table(connection, COMPATIBILITY_TABLE):
        return
    passed = context.script.iterate_revisions(here, "base")
    oldest = next(one.revision for one in passed if getattr(one.module, "breaks_older_code", True))
    connection.execute(delete(CompatibilityRow))
    connection.execute(insert(CompatibilityRow), {"oldest": oldest})


given = context.config.attributes.get("connection")
if given is not None:
    migrate(given)
else:
    url = context.get_x_argument(as_dictionary=True).get("url", "sqlite:///agent.db")
    engine = create_engine(url)
    with engine.begin() as opened:
        migrate(opened)
    engine.dispose()
