"""
Summaries of messages that left the window, and the pins that a prompt showed.

Revision: 0002
"""

import json

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text()
BATCH = 500

assembly = sa.table("assembly", sa.column("id", INT), sa.column("layout", TEXT))


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
    forget_summaries_in_layouts()
    with op.batch_alter_table("assembly") as batch:
        batch.drop_column("pins")
    op.drop_table("summary")


def forget_summaries_in_layouts():
    """
    Let prompts say of messages that a summary stood for only that they were not shown.

    Else they would name summaries that are gone. That these messages left the window stands in the
    log of what was left out, which stays.
    """
    connection = op.get_bind()
    done = 0
    while True:
        rows = connection.execute(
            sa.select(assembly.c.id, assembly.c.layout)
            .where(assembly.c.id > done, assembly.c.layout.contains('"summary"'))
            .order_by(assembly.c.id)
            .limit(BATCH)
        ).all()
        for row in rows:
            spans = [
                [first, last, None] if tier == "summary" else [first, last, tier, *rest]
                for first, last, tier, *rest in json.loads(row.layout)
            ]
            connection.execute(
                sa.update(assembly)
                .where(assembly.c.id == row.id)
                .values(layout=json.dumps(spans, separators=(",", ":")))
            )
        if not rows:
            break
        done = rows[-1].id
