"""
The time zone of a session's user, and the day that its prompts are of.

Revision: 0008
"""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

TEXT = sa.Text()


def upgrade():
    op.add_column("session", sa.Column("timezone", TEXT, nullable=True))
    op.add_column("session", sa.Column("day", TEXT, nullable=True))


def downgrade():
    # Not in batch mode: other tables refer to this one, which must not be copied for it.
    op.execute("ALTER TABLE session DROP COLUMN day")
    op.execute("ALTER TABLE session DROP COLUMN timezone")
