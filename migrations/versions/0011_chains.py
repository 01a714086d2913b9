"""
A hash chain over the messages and events of each branch; what is there is chained now.

Revision: 0011
"""

import sqlalchemy as sa
from alembic import op

from agentmem.store.chain.backfill import chain_session

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()


def upgrade():
    op.add_column("branch", sa.Column("chain", BYTES, nullable=True))
    for name in ("nonce", "link", "sealed"):
        op.add_column("message", sa.Column(name, BYTES, nullable=True))
    op.add_column("pin_version", sa.Column("nonce", BYTES, nullable=True))
    op.create_table(
        "event",
        sa.Column("id", INT, autoincrement=True, nullable=False),
        sa.Column("branch_id", INT, nullable=False),
        sa.Column("at", INT, nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("link", BYTES, nullable=False),
        sa.ForeignKeyConstraint(
            ["branch_id"], ["branch.id"], name="fk_event_branch_id_branch", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_event_branch_id", "event", ["branch_id"])
    chain_session(op.get_bind(), None)


def downgrade():
    op.drop_table("event")
    # Not in batch mode: other tables refer to these, which must not be copied for it.
    op.execute("ALTER TABLE pin_version DROP COLUMN nonce")
    for name in ("sealed", "link", "nonce"):
        op.execute(f"ALTER TABLE message DROP COLUMN {name}")
    op.execute("ALTER TABLE branch DROP COLUMN chain")
