"""
Forget vectors that were made of thoughts, so that the answers alone are embedded anew.

Revision: 0006
"""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

# What is in every mark of a thought that was known at this revision. A few answers without a
# thought are found too, whose vectors come back the same.
_SIGNS = ("think", "thought", "reason", "inner_prefix", "inner_suffix", "channel", "analysis")


def upgrade():
    message = sa.table("message", sa.column("id"), sa.column("role"), sa.column("parts"))
    embedding = sa.table("embedding", sa.column("message_id"))
    parts = sa.func.lower(message.c.parts)
    thinks = sa.or_(*(parts.like(f"%{sign}%") for sign in _SIGNS))
    found = sa.select(message.c.id).where(message.c.role == "assistant", thinks)
    op.execute(sa.delete(embedding).where(embedding.c.message_id.in_(found)))


def downgrade():
    # The vectors that are there hold for what is embedded either way.
    pass
