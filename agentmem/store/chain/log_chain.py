"""
The hash chain of the prompt log, one per branch.

An entry is a prompt with its truncation records. A retention deletes a run of entries: an event of
the branch's chain has its start, its length, and the link that the next entry follows. Deleted
entries count, so that each keeps its number.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, bindparam, cast, insert, select, update

from agentmem.store.database.damage import UNREADABLE
from agentmem.store.database.hashing import digest
from agentmem.store.database.schema import AnyRow, AnySelect, AssemblyRow, BranchRow, TruncationRow
from agentmem.types import TruncationReason

EVENT: Final = "log"
_BATCH: Final = 500
_ENTRY_COLUMNS: Final = (
    "head",
    "tokens_by_tier",
    "layout",
    "prompt_hash",
    "pins",
    "context",
    "reply",
    "fingerprint",
    "created_at",
)
_LEFT_OUT_COLUMNS: Final = (
    "first",
    "last",
    "tier",
    "rule",
    "num_tokens",
    "room",
    "destination",
    "ranges",
)
SET_LOG_CHAIN: Final = (
    update(BranchRow)
    .where(BranchRow.id == bindparam("branch"))
    .values(log_chain=bindparam("new_log_chain"))
)
_ADD: Final = insert(AssemblyRow).returning(AssemblyRow.id)
_GIVEN: Final = [column for column in AssemblyRow.__table__.columns if column.name != "id"]
# One round trip instead of two, during which the branch is locked.
_ADD_AND_SET: Final = (
    insert(AssemblyRow)
    .from_select(
        [column.name for column in _GIVEN],
        select(*(cast(bindparam(f"new_{c.name}", type_=c.type), c.type) for c in _GIVEN)),
    )
    .add_cte(SET_LOG_CHAIN.cte("moved"))
    .returning(AssemblyRow.id)
)
_ENTRIES: Final[AnySelect] = (
    select(AssemblyRow.__table__)
    .where(AssemblyRow.branch_id == bindparam("branch"), AssemblyRow.id > bindparam("after"))
    .order_by(AssemblyRow.id)
    .limit(_BATCH)
)
_LEFT_OUT: Final[AnySelect] = (
    select(TruncationRow.__table__)
    .join(AssemblyRow, AssemblyRow.id == TruncationRow.assembly_id)
    .where(
        AssemblyRow.branch_id == bindparam("branch"),
        AssemblyRow.id > bindparam("after"),
        AssemblyRow.id <= bindparam("until"),
    )
    .order_by(TruncationRow.id)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """A log entry, with its content hash; None where it is corrupt."""

    id: int
    link: object
    content: bytes | None
    named_anew: str | None
    """Hash of the records that a retention added; None without any."""


@dataclass(slots=True, kw_only=True)
class Purged:
    """The entries of a log that retentions have deleted, by number."""

    runs: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    """By the number of entries before a run: its length, and the link that follows it."""
    named_anew: dict[int, str] = field(default_factory=dict)
    """By the number of an entry: the hash of the records added to it."""

    def skip(self, number: int, link: bytes | None) -> tuple[int, bytes | None]:
        """Return the number of entries, deleted ones included, and the link of the last."""
        while number in self.runs:
            count, link = self.runs[number]
            number += count
        return number, link

    def has(self, number: int) -> bool:
        """Whether the link of the entry *number* was deleted with it."""
        return any(start < number < start + run[0] for start, run in self.runs.items())


def add_entry(
    connection: Connection, entry: Mapping[str, Any], left_out: Sequence[Mapping[str, Any]]
) -> int:
    """Insert a log entry with its *link* and its truncation records; return its id."""
    keys = {"branch": entry["branch_id"], "new_log_chain": entry["link"]}
    if connection.dialect.name == "postgresql":
        given = {f"new_{name}": value for name, value in entry.items()}
        added = connection.execute(_ADD_AND_SET, {**given, **keys}).scalar_one()
    else:
        added = connection.execute(_ADD, dict(entry)).scalar_one()
        connection.execute(SET_LOG_CHAIN, keys)
    if left_out:
        rows = [{**row, "assembly_id": added} for row in left_out]
        connection.execute(insert(TruncationRow), rows)
    return int(added)


def entry_digest(entry: Mapping[str, Any], left_out: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the hash of a log entry and of its truncation records, in order."""
    own = (entry[name] for name in _ENTRY_COLUMNS)
    return digest("prompt", *own, *(row[name] for row in left_out for name in _LEFT_OUT_COLUMNS))


def named_digest(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return the hash of the records that a retention adds to an entry."""
    return digest("named", *(row[name] for row in rows for name in _LEFT_OUT_COLUMNS)).hex()


def entries_of(connection: Connection, branch_id: int) -> Iterable[LogEntry]:
    """Read the log of a branch in order, page by page."""
    keys = {"branch": branch_id, "after": 0}
    while rows := connection.execute(_ENTRIES, keys).all():
        left_out: dict[int, list[dict[str, Any]]] = {}
        for row in connection.execute(_LEFT_OUT, {**keys, "until": rows[-1].id}):
            left_out.setdefault(row.assembly_id, []).append(row._asdict())
        yield from (_entry(row, left_out.get(row.id, [])) for row in rows)
        keys["after"] = rows[-1].id


def purged_of(events: Iterable[AnyRow]) -> Purged:
    """Read the deletions by retentions from the events of a branch."""
    purged = Purged()
    for event in events:
        if event.kind != EVENT:
            continue
        try:
            content = json.loads(event.content)
            if "adopted" in content:
                purged = Purged()
            runs = {
                int(number): (int(count), bytes.fromhex(link))
                for number, count, link in content["runs"]
            }
            purged.named_anew |= {int(number): text for number, text in content["named"].items()}
            purged.runs |= {number: run for number, run in runs.items() if run[0] > 0}
        except UNREADABLE:
            continue  # it does not match its chain, which is reported
    return purged


def _entry(row: AnyRow, left_out: Sequence[dict[str, Any]]) -> LogEntry:
    added = [one for one in left_out if one["rule"] == TruncationReason.PURGED.value]
    own = [one for one in left_out if one["rule"] != TruncationReason.PURGED.value]
    content: bytes | None
    try:
        content = entry_digest(row._asdict(), own)
        named_anew = named_digest(added) if added else None
    except UNREADABLE:
        content = named_anew = None
    return LogEntry(id=row.id, link=row.link, content=content, named_anew=named_anew)
