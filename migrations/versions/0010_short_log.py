"""
The log of prompts in short: one row for all runs that a prompt left out for one reason.

What is there stays as it is and is read as before; only the way down rewrites anything.

Revision: 0010
"""

import json
import re

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

TIERS = {
    "h": None,
    "t": "template",
    "p": "pinned",
    "s": "summary",
    "w": "recent",
    "r": "retrieved",
    "c": "current",
}
FORMS = {"": "full", "C": "clipped", "S": "stub", "R": "replaced", "D": "deleted"}
RUN = re.compile("([0-9]*)([a-z])([0-9]*)([A-Z]?)(?:k([0-9]+))?(?:x([0-9]+))?")
RANGE = re.compile("([0-9]+)(?:-([0-9]+))?(?::([0-9]+))?")
BATCH = 500
PURGED = "left out by a prompt whose account was purged"

ASSEMBLY = sa.table("assembly", sa.column("id"), sa.column("layout"), sa.column("tokens_by_tier"))
TRUNCATION = sa.table(
    "truncation",
    *map(
        sa.column,
        (
            "id",
            "assembly_id",
            "first",
            "last",
            "tier",
            "rule",
            "num_tokens",
            "room",
            "destination",
            "ranges",
        ),
    ),
)


def upgrade():
    op.add_column("truncation", sa.Column("ranges", sa.Text(), nullable=True))


def downgrade():
    connection = op.get_bind()
    write_layouts_out(connection)
    write_ranges_out(connection)
    purged = sa.update(TRUNCATION).where(TRUNCATION.c.rule == PURGED)
    connection.execute(purged.values(rule="left the window"))
    op.execute("ALTER TABLE truncation DROP COLUMN ranges")


def write_layouts_out(connection):
    change = (
        sa.update(ASSEMBLY)
        .where(ASSEMBLY.c.id == sa.bindparam("key"))
        .values(layout=sa.bindparam("spans"), tokens_by_tier=sa.bindparam("tokens"))
    )
    last = 0
    while True:
        page = sa.select(ASSEMBLY).where(ASSEMBLY.c.id > last).order_by(ASSEMBLY.c.id).limit(BATCH)
        rows = connection.execute(page).all()
        if not rows:
            return
        last = rows[-1].id
        connection.execute(
            change,
            [
                {"key": row.id, "spans": spans_of(row.layout), "tokens": named(row.tokens_by_tier)}
                for row in rows
            ],
        )


def spans_of(text):
    layout = json.loads(text)
    if isinstance(layout, list):
        return text
    spans, end, keys = [], 0, layout.get("of", [])
    for run in layout["runs"].split():
        length, tier, source, form, kept, times = RUN.fullmatch(run).groups()
        first, end = end + 1, end + int(length or 1)
        spans.append(
            [
                first,
                end,
                TIERS[tier],
                FORMS[form],
                None if kept is None else int(kept),
                keys[int(source)] if source else None,
                int(times or 1),
            ]
        )
    return json.dumps(spans, separators=(",", ":"))


def named(text):
    tokens = json.loads(text)
    if isinstance(tokens, dict):
        return text
    names = ("template", "pinned", "summary", "recent", "retrieved", "current")
    found = {name: number for name, number in zip(names, tokens, strict=True) if number}
    return json.dumps(found, separators=(",", ":"))


def write_ranges_out(connection):
    """Write a row for each run; all later rows are written anew, as their numbers are an order."""
    shortened = sa.select(sa.func.min(TRUNCATION.c.id)).where(TRUNCATION.c.ranges.is_not(None))
    start = connection.execute(shortened).scalar_one()
    if start is None:
        return
    rows = (
        connection.execute(
            sa.select(TRUNCATION).where(TRUNCATION.c.id >= start).order_by(TRUNCATION.c.id)
        )
        .mappings()
        .all()
    )
    connection.execute(sa.delete(TRUNCATION).where(TRUNCATION.c.id >= start))
    found = []
    for row in rows:
        kept = {name: row[name] for name in row if name not in {"id", "ranges"}}
        ranges = [] if row["ranges"] is None else row["ranges"].split()
        found += [kept | run_of(one) for one in ranges] or [kept]
    found.sort(key=lambda one: (one["assembly_id"], one["first"]))
    for at in range(0, len(found), BATCH):
        connection.execute(sa.insert(TRUNCATION), found[at : at + BATCH])


def run_of(text):
    first, last, tokens = RANGE.fullmatch(text).groups()
    return {
        "first": int(first),
        "last": int(last or first),
        "num_tokens": None if tokens is None else int(tokens),
    }
