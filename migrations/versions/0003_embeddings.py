"""
Vectors of messages, and what made them.

Revision: 0003
"""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text()


def upgrade():
    op.create_table(
        "embedder",
        sa.Column("id", INT, autoincrement=True, nullable=False),
        sa.Column("fingerprint", TEXT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_embedder"),
        sa.UniqueConstraint("fingerprint", name="uq_embedder_fingerprint"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "embedding",
        sa.Column("message_id", INT, nullable=False),
        sa.Column("embedder_id", INT, nullable=False),
        sa.Column("first", INT, nullable=False),
        sa.Column("last", INT, nullable=False),
        sa.Column("vector", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("message_id", "embedder_id", "first", name="pk_embedding"),
        sa.ForeignKeyConstraint(
            ["message_id"],
            ["message.id"],
            name="fk_embedding_message_id_message",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["embedder_id"],
            ["embedder.id"],
            name="fk_embedding_embedder_id_embedder",
            ondelete="CASCADE",
        ),
    )
    op.create_index("ix_embedding_embedder_id", "embedding", ["embedder_id"])


def downgrade():
    # They can be made anew from the messages, and so can the copies that PostgreSQL searches.
    connection = op.get_bind()
    if connection.dialect.name == "postgresql":
        for name in sa.inspect(connection).get_table_names():
            if name.startswith("embedding_vector_"):
                op.drop_table(name)
    op.drop_table("embedding")
    op.drop_table("embedder")
