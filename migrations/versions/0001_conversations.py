"""
Sessions, branches, messages with their calls, pins, and the log of prompts.

Revision: 0001
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# Written out, not imported: a migration says what was, whatever the package has become since.
INT = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
MOMENT = sa.DateTime(timezone=True)
TEXT = sa.Text()


def column(name, kind, *, nullable=False):
    return sa.Column(name, kind, nullable=nullable)


def table(name, *parts, numbered=True, keep_numbers=True):
    """Create a table; one that keeps its numbers never gives the id of a deleted row again."""
    key = (
        (sa.Column("id", INT, nullable=False), sa.PrimaryKeyConstraint("id", name=f"pk_{name}"))
        if numbered
        else ()
    )
    options = {"sqlite_autoincrement": True} if numbered and keep_numbers else {}
    op.create_table(name, *key, *parts, **options)


def refer(name, key, to):
    """End a row with the row that it refers to."""
    return sa.ForeignKeyConstraint(
        [key], [f"{to}.id"], name=f"fk_{name}_{key}_{to}", ondelete="CASCADE"
    )


def unique(name, *keys):
    return sa.UniqueConstraint(*keys, name=f"uq_{name}_{'_'.join(keys)}")


def index(name, *keys):
    op.create_index(f"ix_{name}_{'_'.join(keys)}", name, list(keys))


def create_sessions():
    table(
        "owner",
        column("digest", sa.LargeBinary()),
        column("namespace", TEXT),
        column("user", TEXT),
        unique("owner", "digest"),
    )
    table(
        "session",
        column("owner_id", INT),
        column("key", TEXT),
        column("created_at", MOMENT),
        refer("session", "owner_id", "owner"),
        unique("session", "owner_id", "key"),
    )
    table(
        "branch",
        column("session_id", INT),
        column("parent_id", INT, nullable=True),
        column("name", TEXT),
        column("forked_at", INT),
        column("head", INT),
        column("open_calls", INT),
        column("inherit", TEXT),
        column("state", TEXT),
        column("updated_at", MOMENT),
        refer("branch", "session_id", "session"),
        refer("branch", "parent_id", "branch"),
    )
    index("branch", "session_id")
    index("branch", "parent_id")


def create_messages():
    table(
        "message",
        column("branch_id", INT),
        column("position", INT),
        column("role", TEXT),
        column("origin", TEXT),
        column("parts", TEXT),
        column("tool_calls", TEXT, nullable=True),
        column("tool_call_id", TEXT, nullable=True),
        column("name", TEXT, nullable=True),
        column("generated_by", TEXT, nullable=True),
        column("generated_ids", sa.LargeBinary(), nullable=True),
        column("created_at", MOMENT),
        refer("message", "branch_id", "branch"),
        unique("message", "branch_id", "position"),
    )
    promoted = sa.text("origin = 'promoted'")
    op.create_index(
        "ix_message_promoted",
        "message",
        ["branch_id", "position"],
        sqlite_where=promoted,
        postgresql_where=promoted,
    )


def create_calls():
    table(
        "tool_call",
        column("branch_id", INT),
        column("digest", sa.LargeBinary()),
        column("call_id", TEXT),
        column("name", TEXT),
        column("position", INT),
        column("answered_at", INT, nullable=True),
        refer("tool_call", "branch_id", "branch"),
        keep_numbers=False,
    )
    index("tool_call", "branch_id", "digest", "position")
    index("tool_call", "branch_id", "answered_at")
    table(
        "append",
        column("branch_id", INT),
        column("client_key", TEXT),
        column("first", INT),
        column("last", INT),
        column("content", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("branch_id", "client_key", name="pk_append"),
        refer("append", "branch_id", "branch"),
        numbered=False,
    )


def create_pins():
    table(
        "pin",
        column("scope", TEXT),
        column("target_id", INT),
        column("key", TEXT),
        column("version", INT),
        column("owner_id", INT),
        column("session_id", INT, nullable=True),
        column("branch_id", INT, nullable=True),
        refer("pin", "owner_id", "owner"),
        refer("pin", "session_id", "session"),
        refer("pin", "branch_id", "branch"),
        unique("pin", "scope", "target_id", "key"),
    )
    for key in ("owner_id", "session_id", "branch_id"):
        index("pin", key)
    table(
        "pin_version",
        column("pin_id", INT),
        column("version", INT),
        column("text", TEXT, nullable=True),
        column("author", TEXT),
        column("created_at", MOMENT),
        sa.PrimaryKeyConstraint("pin_id", "version", name="pk_pin_version"),
        refer("pin_version", "pin_id", "pin"),
        numbered=False,
    )


def create_ledger():
    table(
        "assembly",
        column("branch_id", INT),
        column("head", INT),
        column("tokens_by_tier", TEXT),
        column("layout", TEXT),
        column("prompt_hash", TEXT),
        column("context", INT),
        column("reply", INT),
        column("fingerprint", TEXT),
        column("created_at", MOMENT),
        refer("assembly", "branch_id", "branch"),
    )
    index("assembly", "branch_id", "context", "reply", "id")
    table(
        "truncation",
        column("assembly_id", INT),
        column("first", INT),
        column("last", INT),
        column("tier", TEXT),
        column("rule", TEXT),
        column("num_tokens", INT, nullable=True),
        column("room", INT),
        column("destination", TEXT),
        refer("truncation", "assembly_id", "assembly"),
        keep_numbers=False,
    )
    index("truncation", "assembly_id")


def upgrade():
    create_sessions()
    create_messages()
    create_calls()
    create_pins()
    create_ledger()


def downgrade():
    for name in (
        "truncation",
        "assembly",
        "pin_version",
        "pin",
        "append",
        "tool_call",
        "message",
        "branch",
        "session",
        "owner",
    ):
        op.drop_table(name)
