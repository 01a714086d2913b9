"""
Which message an automatic pin was made of.

Revision: 0004
"""

import json
import re

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
TEXT = sa.Text()
CUT = re.compile(r"\n\[\.\.\. clipped; message \d+ has all \d+ characters \.\.\.\]\n")

pin = sa.table("pin", sa.column("id", INT), sa.column("scope", TEXT), sa.column("branch_id", INT))
version = sa.table(
    "pin_version",
    sa.column("pin_id", INT),
    sa.column("version", INT),
    sa.column("text", TEXT),
    sa.column("made_from", INT),
)
branch = sa.table("branch", sa.column("id", INT), sa.column("forked_at", INT))
message = sa.table(
    "message",
    sa.column("branch_id", INT),
    sa.column("position", INT),
    sa.column("role", TEXT),
    sa.column("parts", TEXT),
)


def upgrade():
    op.add_column("pin_version", sa.Column("made_from", INT, nullable=True))
    note_what_was_pinned_by_itself()


def downgrade():
    # Not in batch mode: a copy of the table is not needed for it.
    op.execute("ALTER TABLE pin_version DROP COLUMN made_from")


def note_what_was_pinned_by_itself():
    """Find the pins of branches that repeat the first message that the branch itself has."""
    connection = op.get_bind()
    found = (
        sa.select(version.c.pin_id, version.c.version, version.c.text)
        .add_columns(message.c.position, message.c.parts)
        .join(pin, pin.c.id == version.c.pin_id)
        .join(branch, branch.c.id == pin.c.branch_id)
        .join(
            message,
            (message.c.branch_id == branch.c.id) & (message.c.position == branch.c.forked_at + 1),
        )
        .where(pin.c.scope == "branch", message.c.role == "user", version.c.text.is_not(None))
    )
    for row in connection.execute(found).all():
        if repeats(row.text, row.parts):
            connection.execute(
                sa.update(version)
                .where(version.c.pin_id == row.pin_id, version.c.version == row.version)
                .values(made_from=row.position)
            )


def repeats(pinned, parts):
    """Whether a pin says what a message says, in full or with its middle cut out."""
    try:
        said = "\n".join(part["text"] for part in json.loads(parts))
    except (ValueError, KeyError, TypeError):
        return False
    sides = CUT.split(pinned, maxsplit=1)
    if len(sides) == 1:
        return pinned == said
    return said.startswith(sides[0]) and said.endswith(sides[1])
