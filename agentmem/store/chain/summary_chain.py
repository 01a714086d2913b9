"""
Summaries in the hash chain: each that is written or loses its text is an event of its branch.

The event has the messages that it covers and a hash; what a summary says stands in its row alone.
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
"""The messages that a summary covers, and the hash of its row."""


def sealed(row: Mapping[str, Any]) -> Sealed:
    """Return what an event says of a summary."""
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
    """Note in the chain of a branch, which the caller holds, summaries as they are by now."""
    added = sorted((row["key"], *sealed(row)) for row in rows)
    changes: dict[str, Sequence[Any]] = {"added": added, "removed": sorted(removed)}
    if any(changes.values()):
        add_event(connection, branch_id, EVENT, changes)


def take_changes(there: dict[str, Sealed], changes: Mapping[str, Any]) -> None:
    """Change what is *there*, by keys, as an event says."""
    for key in changes.get("removed", ()):
        there.pop(key, None)
    there |= {key: (first, last, text) for key, first, last, text in changes.get("added", ())}
