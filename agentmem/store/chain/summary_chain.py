"""
Summaries in the hash chain: writing one or deleting its text is an event of its branch.

The event has its range and a hash; the text of a summary is in its row only.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection

from agentmem.store.chain.branch_chain import add_event
from agentmem.store.database.damage import UNREADABLE
from agentmem.store.database.hashing import digest

EVENT: Final = "summaries"
_COLUMNS: Final = (
    "key",
    "first",
    "last",
    "level",
    "text",
    "author",
    "source_hash",
    "created_at",
)
_UNREADABLE: Final = "unreadable"

Sealed = tuple[int, int, str]
"""The range of a summary, and the hash of its row."""


def sealed(row: Mapping[str, Any]) -> Sealed:
    """Return the content of an event for a summary."""
    try:
        content = digest("summary", *(row[name] for name in _COLUMNS)).hex()
    except UNREADABLE:
        content = _UNREADABLE
    return row["first"], row["last"], content


def note_summaries(
    connection: Connection,
    branch_id: int,
    rows: Iterable[Mapping[str, Any]],
    removed: Iterable[str] = (),
) -> None:
    """Add an event of the current summaries to a branch, whose lock the caller holds."""
    added = sorted((row["key"], *sealed(row)) for row in rows)
    changes: dict[str, Sequence[Any]] = {"added": added, "removed": sorted(removed)}
    if any(changes.values()):
        add_event(connection, branch_id, EVENT, changes)


def take_changes(there: dict[str, Sealed], changes: Mapping[str, Any]) -> None:
    """Apply an event to the summaries *there*, by keys."""
    for key in changes.get("removed", ()):
        there.pop(key, None)
    there |= {key: (first, last, text) for key, first, last, text in changes.get("added", ())}
