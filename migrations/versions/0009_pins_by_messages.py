"""
The newest message at the time that a version of a pin was set.

Revision: 0009
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade():
    op.add_column("pin_version", sa.Column("after_message", INT, nullable=True))


def downgrade():
    # Not in batch mode, which would copy the table.
    op.execute("ALTER TABLE pin_version DROP COLUMN after_message")
