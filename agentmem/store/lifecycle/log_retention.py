"""
Retention of the prompt log: delete old entries, and keep their truncations recorded.

A window continues from the last entry of its branch, budget and counter, so that one is kept. The
oldest remaining entry gets records of all messages that it does not show, since the original
records are deleted.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from agentmem.errors import DamagedRowError
from agentmem.store.chain.branch_chain import add_event
from agentmem.store.chain.log_chain import EVENT as LOG_EVENT
from agentmem.store.chain.log_chain import named_digest, purged_of
from agentmem.store.database.damage import log_unreadable
from agentmem.store.database.database import Database
from agentmem.store.database.schema import (
    AnyRow,
    AnySelect,
    AssemblyRow,
    BranchRow,
    EventRow,
    OwnerRow,
    SessionRow,
    TruncationRow,
)
from agentmem.store.prompt_log.row_codec import encode_records, to_info, to_records
from agentmem.types import AssemblyInfo, DisplayForm, Span, Tier, TruncationReason, TruncationRecord

_KEY: Final = (
    AssemblyRow.branch_id,
    AssemblyRow.context,
    AssemblyRow.reply,
    AssemblyRow.fingerprint,
)
_SAME_KEY: Final = tuple(column == bindparam(f"of_{column.key}") for column in _KEY)
_OLD: Final = (
    select(*_KEY)
    .join(BranchRow, BranchRow.id == AssemblyRow.branch_id)
    .join(SessionRow, SessionRow.id == BranchRow.session_id)
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
    .where(OwnerRow.namespace == bindparam("namespace"))
    .group_by(*_KEY)
    .having(func.min(AssemblyRow.created_at) < bindparam("before"), func.count() > 1)
    .order_by(*_KEY)
)
_LOCK: Final = (
    select(BranchRow.id).where(BranchRow.id == bindparam("of_branch_id")).with_for_update()
)
# By id, not by time: clocks may have been set back.
_FIRST_NEW: Final = select(func.min(AssemblyRow.id)).where(
    *_SAME_KEY, AssemblyRow.created_at >= bindparam("before")
)
_LAST: Final = select(func.max(AssemblyRow.id)).where(*_SAME_KEY)
_EARLIER: Final = select(AssemblyRow.id).where(*_SAME_KEY, AssemblyRow.id < bindparam("kept"))
_ENTRIES: Final = (
    select(AssemblyRow.id, AssemblyRow.link)
    .where(AssemblyRow.branch_id == bindparam("of_branch_id"))
    .order_by(AssemblyRow.id)
)
_EVENTS: Final = (
    select(EventRow.kind, EventRow.content)
    .where(EventRow.branch_id == bindparam("of_branch_id"))
    .order_by(EventRow.id)
)
_BATCH: Final = 500
_FEW: Final = 10
_ACCOUNTS: Final[AnySelect] = select(AssemblyRow.__table__).where(*_SAME_KEY)
_FROM: Final = _ACCOUNTS.where(AssemblyRow.id >= bindparam("kept")).order_by(AssemblyRow.id)
_BACK: Final = _ACCOUNTS.where(AssemblyRow.id < bindparam("kept")).order_by(AssemblyRow.id.desc())
_RECORDS: Final[AnySelect] = (
    select(TruncationRow.__table__, AssemblyRow.branch_id, AssemblyRow.created_at)
    .join(AssemblyRow, AssemblyRow.id == TruncationRow.assembly_id)
    .where(AssemblyRow.id == bindparam("kept"))
)


def purge_log(database: Database, before: datetime, *, namespace: str, dry_run: bool) -> int:
    """
    Delete the log entries older than *before*, and return their number.

    Each branch, budget and counter keeps its last one. The deletion in each branch is one
    transaction, with an event in its chain; with *dry_run* nothing is deleted. The kept entry is
    readable; if none is, or the chain of a branch has no readable end, all are kept, which is
    logged.
    """
    asked = {"namespace": namespace, "before": before}
    found = database.read(lambda connection: connection.execute(_OLD, asked).all())
    num = 0
    by_branch: dict[int, list[AnyRow]] = {}
    for row in found:
        by_branch.setdefault(row.branch_id, []).append(row)
    for branch_id, keys in by_branch.items():

        def work(
            connection: Connection, branch_id: int = branch_id, keys: list[AnyRow] = keys
        ) -> int:
            return _purge(connection, branch_id, keys, before, dry_run=dry_run)

        try:
            num += database.read(work) if dry_run else database.write(work)
        except DamagedRowError as error:
            database.read(partial(log_unreadable, error=error))
    return num


def _purge(
    connection: Connection,
    branch_id: int,
    keys: Sequence[AnyRow],
    before: datetime,
    *,
    dry_run: bool,
) -> int:
    if not dry_run:
        connection.execute(_LOCK, {"of_branch_id": branch_id})
    doomed: set[int] = set()
    named: dict[int, str | None] = {}
    for key in keys:
        same = {f"of_{column.key}": getattr(key, column.key) for column in _KEY}
        kept = connection.execute(_FIRST_NEW, {**same, "before": before}).scalar()
        if kept is None:
            kept = connection.execute(_LAST, same).scalar_one()
        try:
            info, own = _first_whole(connection, {**same, "kept": kept})
        except DamagedRowError as error:
            log_unreadable(connection, error)
            continue
        earlier = connection.execute(_EARLIER, {**same, "kept": info.id}).scalars().all()
        if earlier and not dry_run:
            named[info.id] = _name_anew(connection, info, own)
        doomed.update(earlier)
    if doomed and not dry_run:
        _note(connection, branch_id, doomed, named)
        for some in _chunks(sorted(doomed)):
            connection.execute(delete(AssemblyRow).where(AssemblyRow.id.in_(some)))
    return len(doomed)


def _name_anew(
    connection: Connection, info: AssemblyInfo, own: Sequence[TruncationRecord]
) -> str | None:
    """Add records of unrecorded truncations to an entry, and return their hash."""
    made = encode_records(_named_anew(info, own))
    if not made:
        return None
    connection.execute(insert(TruncationRow), [{**row, "assembly_id": info.id} for row in made])
    return named_digest(made)


def _note(
    connection: Connection, branch_id: int, doomed: set[int], named: Mapping[int, str | None]
) -> None:
    """Append an event of the deleted entries and the added records to the branch's chain."""
    events = connection.execute(_EVENTS, {"of_branch_id": branch_id}).all()
    purged = purged_of(events)
    number, runs, added = 0, list[tuple[int, int, str]](), dict[int, str]()
    is_run = False
    for row in connection.execute(_ENTRIES, {"of_branch_id": branch_id}):
        after, _ = purged.skip(number, None)
        is_run, number = is_run and after == number, after + 1
        if row.id in doomed:
            link = row.link.hex() if isinstance(row.link, bytes) else ""
            start, count = (runs.pop()[:2]) if is_run else (number - 1, 0)
            runs.append((start, count + 1, link))
        elif text := named.get(row.id):
            added[number] = text
        is_run = row.id in doomed
    add_event(connection, branch_id, LOG_EVENT, {"runs": runs, "named": added})


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), _BATCH):
        yield ids[start : start + _BATCH]


def _first_whole(
    connection: Connection, keys: dict[str, Any]
) -> tuple[AssemblyInfo, list[TruncationRecord]]:
    """
    Return the entry *kept* with its records, or the nearest readable one, later ones first.

    Raises:
        DamagedRowError: none is readable.
    """
    lost: DamagedRowError | None = None
    for statement in (_FROM, _BACK):
        for row in connection.execute(statement, keys).yield_per(_FEW):
            try:
                info = to_info(row)
                rows = connection.execute(_RECORDS, {"kept": info.id})
                return info, [record for one in rows for record in to_records(one)]
            except DamagedRowError as error:
                lost = lost or error
    raise lost or DamagedRowError("assembly", reason="the row does not exist")


def _named_anew(info: AssemblyInfo, own: Sequence[TruncationRecord]) -> list[TruncationRecord]:
    """Return the truncations of a prompt that its *own* records do not include."""
    return [
        TruncationRecord(
            branch_id=info.branch_id,
            first=first,
            last=last,
            tier=span.tier or Tier.RECENT,
            reason=TruncationReason.PURGED,
            num_tokens=None,
            room=0,
            destination="store" if span.source is None else f"summary {span.source}",
        )
        for span in info.layout
        if span.tier in (None, Tier.SUMMARY) or span.form is not DisplayForm.FULL
        for first, last in _unnamed(span, own)
    ]


def _unnamed(span: Span, own: Sequence[TruncationRecord]) -> list[tuple[int, int]]:
    """Return the runs of *span* without a record."""
    left: list[tuple[int, int]] = []
    start = span.first
    for record in sorted(own, key=lambda record: record.first):
        if record.first > span.last or record.last < start:
            continue
        if start < record.first:
            left.append((start, record.first - 1))
        start = record.last + 1
    return [*left, (start, span.last)] if start <= span.last else left
