"""Replacements in the hash chain: adding or removing one is an event of its branch, with hashes."""

from collections.abc import Set as AbstractSet
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from agentmem.store.chain.branch_chain import add_event
from agentmem.store.database.damage import UNREADABLE
from agentmem.store.database.hashing import digest
from agentmem.store.database.schema import ReplacementRow

EVENT: Final = "replacements"
ALL: Final = select(ReplacementRow.__table__).order_by(ReplacementRow.branch_id, ReplacementRow.old)
REPLACEMENTS: Final = ALL.where(ReplacementRow.branch_id == bindparam("branch"))
_COLUMNS: Final = ("old", "new", "author", "created_at")


def sealed_replacement(row: Any) -> str:
    """Return the hash of a replacement; one of its own for a corrupt row."""
    try:
        return digest("replacement", *(getattr(row, name) for name in _COLUMNS)).hex()
    except UNREADABLE:
        return f"unreadable {row.old!r:.50}"


def note_replacements(
    connection: Connection, branch_id: int, *, added: AbstractSet[str], removed: AbstractSet[str]
) -> None:
    """Add an event of added and removed replacements to a branch, whose lock the caller holds."""
    if added or removed:
        changes = {"added": sorted(added), "removed": sorted(removed)}
        add_event(connection, branch_id, EVENT, changes)
