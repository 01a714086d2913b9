"""
Messages whose statement a later message of the conversation replaced.

Revision: 0015
"""

import sqlalchemy as sa
from alembic import op

from agentmem.store.chain.replacement_chain import ALL, note_replacements, sealed_replacement

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None
breaks_older_code = False  # optional for its messages, without texts, and goes with its branch

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade():
    op.create_table(
        "replacement",
        sa.Column("branch_id", INT, nullable=False),
        sa.Column("old", INT, nullable=False),
        sa.Column("new", INT, nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("branch_id", "old", name="pk_replacement"),
        sa.ForeignKeyConstraint(
            ["branch_id"],
            ["branch.id"],
            name="fk_replacement_branch_id_branch",
            ondelete="CASCADE",
        ),
    )


def downgrade():
    connection = op.get_bind()
    removed: dict[int, set[str]] = {}
    for row in connection.execute(ALL):
        removed.setdefault(row.branch_id, set()).add(sealed_replacement(row))
    # Their events stay, so that of their removal must follow.
    for branch_id, sealed in removed.items():
        note_replacements(connection, branch_id, added=set(), removed=sealed)
    op.drop_table("replacement")
