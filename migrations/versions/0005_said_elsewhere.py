"""
When a message was stored, where that was not when it was said.

Revision: 0005
"""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade():
    op.add_column("message", sa.Column("stored_at", sa.DateTime(timezone=True), nullable=True))


def downgrade():
    # Not in batch mode: other tables refer to this one, which must not be copied for it.
    op.execute("ALTER TABLE message DROP COLUMN stored_at")
