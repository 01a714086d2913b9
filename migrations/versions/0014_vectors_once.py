"""
Vectors that PostgreSQL compares itself are kept in their tables alone.

Revision: 0014
"""

import sqlalchemy as sa
from alembic import op

from agentmem.store.vectors.pgvector import IN_TABLE, as_stored, vector_tables

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None
breaks_older_code = True  # it would find nothing by such a vector

PAGE = 500
KEYS = "(e.message_id, e.embedder_id, e.first) = (v.message_id, v.embedder_id, v.first)"


def upgrade():
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for table in vector_tables(connection):
            statement = f"UPDATE embedding e SET vector = :marker FROM {table} v WHERE {KEYS}"  # noqa: S608 - names of ours
            connection.execute(sa.text(statement), {"marker": IN_TABLE})


def downgrade():
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    for table in vector_tables(connection):
        moved = f"{table} v JOIN embedding e ON {KEYS} WHERE e.vector = :marker LIMIT {PAGE}"
        columns = "v.message_id, v.embedder_id, v.first, vector_send(v.vector) AS sent"
        read = sa.text(f"SELECT {columns} FROM {moved}")  # noqa: S608 - names of ours
        write = sa.text(
            "UPDATE embedding SET vector = :vector WHERE (message_id, embedder_id, first) = "
            "(:message_id, :embedder_id, :first)"
        )
        while rows := connection.execute(read, {"marker": IN_TABLE}).mappings().all():
            pages = [{**row, "vector": as_stored(bytes(row["sent"]))} for row in rows]
            connection.execute(write, pages)
    # Of a table that is gone; older code embeds them again.
    connection.execute(sa.text("DELETE FROM embedding WHERE vector = :m"), {"m": IN_TABLE})
