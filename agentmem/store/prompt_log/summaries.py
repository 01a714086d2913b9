"""Summaries: stored with the first prompt that shows them, immutable."""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from agentmem.errors import ConflictError, DamagedRowError
from agentmem.store.chain.summary_chain import note_summaries
from agentmem.store.database.damage import check_row, damaged, log_unreadable, reading
from agentmem.store.database.schema import AnyRow, BranchRow, MessageRow, SummaryRow
from agentmem.store.transcript.replacement_rows import seen_replacements
from agentmem.types import BranchId, Origin, StoredMessage, Summary

_BY_KEY: Final = (
    select(SummaryRow.__table__)
    .join(BranchRow, BranchRow.id == SummaryRow.branch_id)
    .where(
        BranchRow.session_id == bindparam("session"),
        SummaryRow.key.in_(bindparam("keys", expanding=True)),
    )
)
# The text of a summary is NULL after its deletion.
_WITH_TEXT: Final = SummaryRow.text != ""
_BY_KEY_WITH_TEXT: Final = _BY_KEY.where(_WITH_TEXT)
_OF_BRANCH: Final = (
    select(SummaryRow.__table__)
    .where(SummaryRow.branch_id == bindparam("branch"), _WITH_TEXT)
    .order_by(SummaryRow.first, SummaryRow.level, SummaryRow.key)
)
_KEYS_OF_BRANCH: Final = select(SummaryRow.key).where(
    SummaryRow.branch_id == bindparam("branch"),
    SummaryRow.key.in_(bindparam("keys", expanding=True)),
)
_NUM_WITH_TEXT: Final = (
    select(func.count())
    .select_from(MessageRow)
    .where(
        MessageRow.id.in_(bindparam("ids", expanding=True)),
        MessageRow.origin != Origin.DELETED.value,
    )
)
_COVERING: Final = select(SummaryRow.__table__).where(
    SummaryRow.branch_id.in_(
        select(BranchRow.id).where(BranchRow.session_id == bindparam("session"))
    ),
    SummaryRow.first <= bindparam("place"),
    SummaryRow.last >= bindparam("place"),
    _WITH_TEXT,
)
_DROP_LOST: Final = delete(SummaryRow).where(
    SummaryRow.branch_id == bindparam("holder"),
    SummaryRow.first <= bindparam("place"),
    SummaryRow.last >= bindparam("place"),
    SummaryRow.key.not_in(bindparam("whole", expanding=True)),
    _WITH_TEXT,
)
_FORGET: Final = (
    update(SummaryRow)
    .where(SummaryRow.branch_id == bindparam("holder"), SummaryRow.key == bindparam("summary"))
    .values(text="")
)
_BATCH: Final = 500
_WITHOUT_TEXT: Final = frozenset({Origin.DELETED, Origin.DAMAGED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Inputs of new summaries: messages, and summaries in the log."""

    messages: Sequence[StoredMessage] = ()
    summaries: Sequence[Summary] = ()
    superseded: AbstractSet[int] = frozenset()
    """Positions of messages that were known to be replaced, and left out."""


def add_summaries(
    connection: Connection, branch_id: BranchId, summaries: Sequence[Summary], now: datetime
) -> None:
    """
    Insert the summaries of the branch that are not stored yet.

    A subtask shows its parent's too, which are the parent's rows.
    """
    own = {s.key: s for s in summaries if s.branch_id == branch_id}
    if not own:
        return
    keys = {"branch": branch_id, "keys": list(own)}
    there = set(connection.scalars(_KEYS_OF_BRANCH, keys))
    rows = [_encode(s, now) for key, s in own.items() if key not in there]
    if rows:
        connection.execute(insert(SummaryRow), rows)
        note_summaries(connection, branch_id, rows)


def forget_summaries(connection: Connection, session_id: int, position: int) -> None:
    """
    Delete the texts of all summaries of a session that cover *position*.

    Positions of sibling branches overlap, so this deletes more than those of the message itself.
    The rows stay without their texts, since the prompt log refers to them. Corrupt rows are
    deleted. The caller holds the locks of all branches.
    """
    keys = {"session": session_id, "place": position}
    rows = connection.execute(_COVERING, keys).all()
    by_branch: dict[int, list[dict[str, Any]]] = {}
    lost: dict[int, list[str]] = {}
    for row in rows:
        emptied = by_branch.setdefault(row.branch_id, [])
        try:
            check_row("summary", row)
        except DamagedRowError:
            known = [row.key] if isinstance(row.key, str) and row.key.isascii() else []
            lost.setdefault(row.branch_id, []).extend(known)
        else:
            emptied.append({**row._asdict(), "text": ""})
            connection.execute(_FORGET, {"holder": row.branch_id, "summary": row.key})
    for branch_id, emptied in sorted(by_branch.items()):
        if branch_id in lost:
            # Not by key, which may be corrupt.
            whole = {"holder": branch_id, "whole": [row["key"] for row in emptied]}
            connection.execute(_DROP_LOST, {**whole, "place": position})
        note_summaries(connection, branch_id, emptied, lost.get(branch_id, ()))


def expect_sources(connection: Connection, branch: AnyRow, sources: Sources, *, head: int) -> None:
    """
    Check that none of *sources* was deleted or replaced since it was read, as of message *head*.

    The caller holds the lock of the branch, as does a deletion or a replacement of a message.

    Raises:
        ConflictError: one was; a summary of it must not be stored.
    """
    session_id = branch.session_id
    positions = {one.position for one in sources.messages} - sources.superseded
    if replaced := sorted(positions & seen_replacements(connection, branch, head).keys()):
        raise ConflictError(
            f"message {replaced[0]}, which a summary covers, was replaced concurrently: assemble "
            "again"
        )
    keys = [summary.key for summary in sources.summaries]
    num_gone = len(set(keys)) - len(find_summaries(connection, session_id, keys))
    # A subtask may inherit a message that its parent shows too.
    ids = sorted({one.id for one in sources.messages if one.origin not in _WITHOUT_TEXT})
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        num_gone += len(some) - connection.execute(_NUM_WITH_TEXT, {"ids": some}).scalar_one()
    if num_gone:
        raise ConflictError(
            f"{num_gone} messages that a summary covers were deleted concurrently: assemble again"
        )


def find_summaries(
    connection: Connection, session_id: int, keys: Sequence[str]
) -> dict[str, Summary]:
    """Return the summaries of a session with *keys*."""
    if not keys:
        return {}
    rows = connection.execute(_BY_KEY_WITH_TEXT, {"session": session_id, "keys": list(keys)})
    return {summary.key: summary for summary in _readable(connection, rows)}


def known_keys(connection: Connection, session_id: int, keys: Sequence[str]) -> set[str]:
    """Return the *keys* of summaries of the session, deleted ones included."""
    if not keys:
        return set()
    rows = connection.execute(_BY_KEY, {"session": session_id, "keys": list(keys)})
    return {row.key for row in rows}


def summaries_of(connection: Connection, branch_id: BranchId) -> tuple[Summary, ...]:
    """Return all summaries of a branch, ordered by position."""
    return tuple(_readable(connection, connection.execute(_OF_BRANCH, {"branch": branch_id})))


def _readable(connection: Connection, rows: Iterable[AnyRow]) -> Iterator[Summary]:
    """Omit corrupt or altered summaries, as if deleted."""
    for row in rows:
        try:
            summary = _to_summary(row)
            if summary.key != row.key:
                raise damaged("summary", row, None, "its text or range does not match its key")
        except DamagedRowError as error:
            log_unreadable(connection, error)
        else:
            yield summary


def _encode(summary: Summary, now: datetime) -> dict[str, Any]:
    return {
        "branch_id": summary.branch_id,
        "key": summary.key,
        "first": summary.first,
        "last": summary.last,
        "level": summary.level,
        "text": summary.text,
        "author": summary.author,
        "source_hash": summary.source_hash,
        "created_at": now,
    }


@reading("summary")
def _to_summary(row: AnyRow) -> Summary:
    return Summary(
        branch_id=BranchId(row.branch_id),
        first=row.first,
        last=row.last,
        level=row.level,
        text=row.text,
        author=row.author,
        source_hash=row.source_hash,
    )
