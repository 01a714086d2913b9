"""
Retention of the log of prompts: old accounts go, and what they left out stays named.

A window goes on from the last account of its branch, budget and counter, so that one stays. The
oldest that is left gets a record of all that it does not show: those that said when and why it
left are gone, and the log says so.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from agentmem.errors import DamagedRowError
from agentmem.store.damage import log_unreadable
from agentmem.store.engine import Database
from agentmem.store.ledger_codec import encode_records, to_info, to_records
from agentmem.store.schema import (
    AnyRow,
    AnySelect,
    AssemblyRow,
    BranchRow,
    OwnerRow,
    SessionRow,
    TruncationRow,
)
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
# By their numbers and not by their times: clocks may have gone backwards.
_FIRST_NEW: Final = select(func.min(AssemblyRow.id)).where(
    *_SAME_KEY, AssemblyRow.created_at >= bindparam("before")
)
_LAST: Final = select(func.max(AssemblyRow.id)).where(*_SAME_KEY)
_EARLIER: Final = (*_SAME_KEY, AssemblyRow.id < bindparam("kept"))
_ACCOUNT: Final[AnySelect] = select(AssemblyRow.__table__).where(
    AssemblyRow.id == bindparam("kept")
)
_RECORDS: Final[AnySelect] = (
    select(TruncationRow.__table__, AssemblyRow.branch_id, AssemblyRow.created_at)
    .join(AssemblyRow, AssemblyRow.id == TruncationRow.assembly_id)
    .where(AssemblyRow.id == bindparam("kept"))
)


def purge_log(database: Database, before: datetime, *, namespace: str, dry_run: bool) -> int:
    """
    Delete the accounts of prompts that were made *before*, and count them.

    Each branch, budget and counter keeps its last one. Those of one go in a transaction of their
    own; with *dry_run* none do. Those that cannot be read stay, and are logged.
    """
    asked = {"namespace": namespace, "before": before}
    found = database.read(lambda connection: connection.execute(_OLD, asked).all())
    num = 0
    for row in found:

        def work(connection: Connection, row: AnyRow = row) -> int:
            return _purge(connection, row, before, dry_run=dry_run)

        try:
            num += database.read(work) if dry_run else database.write(work)
        except DamagedRowError as error:
            log_unreadable(error)
    return num


def _purge(connection: Connection, key: AnyRow, before: datetime, *, dry_run: bool) -> int:
    same = {f"of_{column.key}": getattr(key, column.key) for column in _KEY}
    if not dry_run:
        connection.execute(_LOCK, {"of_branch_id": key.branch_id})
    kept = connection.execute(_FIRST_NEW, {**same, "before": before}).scalar()
    if kept is None:
        kept = connection.execute(_LAST, same).scalar_one()
    keys = {**same, "kept": kept}
    counted = select(func.count()).select_from(AssemblyRow).where(*_EARLIER)
    num = int(connection.execute(counted, keys).scalar_one())
    if dry_run or not num:
        return num
    info = to_info(connection.execute(_ACCOUNT, {"kept": kept}).one())
    rows = connection.execute(_RECORDS, {"kept": kept})
    own = [record for row in rows for record in to_records(row)]
    if made := encode_records(_named_anew(info, own), kept):
        connection.execute(insert(TruncationRow), made)
    connection.execute(delete(AssemblyRow).where(*_EARLIER), keys)
    return num


def _named_anew(info: AssemblyInfo, own: Sequence[TruncationRecord]) -> list[TruncationRecord]:
    """Name what a prompt does not show in full and its *own* records do not name."""
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
    """Return the runs of *span* that no record names."""
    left: list[tuple[int, int]] = []
    start = span.first
    for record in sorted(own, key=lambda record: record.first):
        if record.first > span.last or record.last < start:
            continue
        if start < record.first:
            left.append((start, record.first - 1))
        start = record.last + 1
    return [*left, (start, span.last)] if start <= span.last else left
