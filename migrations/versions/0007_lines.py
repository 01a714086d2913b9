"""
Lines that a session can be on, beside the one that it began with.

Revision: 0007
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade():
    op.add_column("branch", sa.Column("line", INT, nullable=True))


def downgrade():
    # Not in batch mode: other tables refer to this one, which must not be copied for it.
    op.execute("ALTER TABLE branch DROP COLUMN line")
