"""
The log of prompts, summaries and the pins of users in hash chains; what is there is chained now.

Revision: 0013
"""

import sqlalchemy as sa
from alembic import op

from agentmem.store.chain.backfill import chain_made, chain_users

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None
breaks_older_code = True  # the chain covers what older code writes without links

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
BYTES = sa.LargeBinary()
ADDED = (("owner", "chain"), ("branch", "log_chain"), ("assembly", "link"))


def upgrade():
    for table, name in ADDED:
        op.add_column(table, sa.Column(name, BYTES, nullable=True))
    op.create_table(
        "user_event",
        sa.Column("id", INT, autoincrement=True, nullable=False),
        sa.Column("owner_id", INT, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("link", BYTES, nullable=False),
        sa.ForeignKeyConstraint(
            ["owner_id"], ["owner.id"], name="fk_user_event_owner_id_owner", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_user_event"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_user_event_owner_id", "user_event", ["owner_id"])
    connection = op.get_bind()
    chain_made(connection, None, is_new=True)
    chain_users(connection)


def downgrade():
    op.drop_table("user_event")
    # Not in batch mode: other tables refer to these, which must not be copied for it.
    for table, name in ADDED:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
