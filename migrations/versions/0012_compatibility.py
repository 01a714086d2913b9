"""
The oldest revision whose code may use the tables, for code that does not know a later one.

Revision: 0012
"""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None
breaks_older_code = True  # code of before takes no revision but its own


def upgrade():
    op.create_table(
        "compatibility",
        sa.Column("oldest", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("oldest", name="pk_compatibility"),
    )


def downgrade():
    op.drop_table("compatibility")
