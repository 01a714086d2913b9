"""
Summaries of messages that left the window, and the pins that a prompt showed.

Revision: 0002
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text()


def upgrade():
    op.create_table(
        "summary",
        sa.Column("branch_id", INT, nullable=False),
        sa.Column("key", TEXT, nullable=False),
        sa.Column("first", INT, nullable=False),
        sa.Column("last", INT, nullable=False),
        sa.Column("level", INT, nullable=False),
        sa.Column("text", TEXT, nullable=False),
        sa.Column("author", TEXT, nullable=False),
        sa.Column("source_hash", TEXT, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("branch_id", "key", name="pk_summary"),
        sa.ForeignKeyConstraint(
            ["branch_id"], ["branch.id"], name="fk_summary_branch_id_branch", ondelete="CASCADE"
        ),
    )
    with op.batch_alter_table("assembly") as batch:
        batch.add_column(sa.Column("pins", TEXT, nullable=False, server_default="[]"))


def downgrade():
    with op.batch_alter_table("assembly") as batch:
        batch.drop_column("pins")
    op.drop_table("summary")
