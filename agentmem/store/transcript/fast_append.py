"""The fast path of appends without tool calls: two statements, on PostgreSQL one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, cast, exists, insert, select, update

from agentmem.store.chain.branch_chain import SET_CHAIN, followed_in_sql, linked, seal
from agentmem.store.database.schema import BranchRow, MessageRow, OwnerRow, SessionRow
from agentmem.store.database.tenancy import check_id, is_owner, owner_digest
from agentmem.store.transcript.branches import latest
from agentmem.store.transcript.message_codec import encode
from agentmem.store.transcript.tool_calls import PendingMessage
from agentmem.types import (
    BranchId,
    BranchState,
    Message,
    MessageId,
    Origin,
    Role,
    Scope,
    StoredMessage,
)

_INSERT: Final = insert(MessageRow).returning(MessageRow.id)
_INSERT_MANY: Final = insert(MessageRow).returning(MessageRow.id, sort_by_parameter_order=True)
_MOVE: Final = (
    update(BranchRow)
    .where(
        BranchRow.id == bindparam("branch"),
        BranchRow.state == BranchState.OPEN.value,
        BranchRow.open_calls == 0,
        exists()
        .where(SessionRow.id == BranchRow.session_id)
        .where(OwnerRow.id == SessionRow.owner_id, is_owner()),
    )
    .values(
        head=BranchRow.head + bindparam("number"),
        updated_at=latest(),
    )
    .returning(BranchRow.head, BranchRow.chain)
)
_ADVANCE: Final = _MOVE.values(chain=followed_in_sql("sqlite"))
_MOVED: Final = _MOVE.values(chain=followed_in_sql("postgresql")).cte("moved")
_GIVEN: Final = [
    column
    for column in MessageRow.__table__.columns
    if column.name not in {"id", "branch_id", "position", "link"}
]
# The branch is locked from its update to the commit: one round trip less shortens the wait of
# other writers.
_ADVANCE_AND_INSERT: Final = (
    insert(MessageRow)
    .from_select(
        ["branch_id", "position", "link", *(column.name for column in _GIVEN)],
        select(
            cast(bindparam("branch"), BranchRow.id.type),
            _MOVED.c.head,
            _MOVED.c.chain,
            *(cast(bindparam(f"new_{c.name}", type_=c.type), c.type) for c in _GIVEN),
        ),
    )
    .returning(MessageRow.id, MessageRow.position)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Time of storage, and the `created_at` of the message if different."""

    now: datetime
    said_at: datetime | None = None

    @property
    def created_at(self) -> datetime:
        """Time of the message."""
        return self.now if self.said_at is None else self.said_at

    def columns(self) -> dict[str, datetime | None]:
        """Return the time columns of a message."""
        stored_at = None if self.said_at is None else self.now
        return {"created_at": self.created_at, "stored_at": stored_at}


def append_plain(  # noqa: PLR0913, PLR0917 - the fields of a message
    connection: Connection,
    scope: Scope,
    branch_id: BranchId,
    messages: Sequence[Message],
    origin: Origin,
    times: Times,
) -> tuple[StoredMessage, ...] | None:
    """
    Lock a branch, move its head and store *messages*.

    Return None, without storing, if the slow path is needed: the branch does not exist, is not
    open, has open calls, or *messages* make or answer any.
    """
    if any(message.tool_calls or message.role is Role.TOOL for message in messages):
        return None
    keys = {
        "branch": check_id("branch", branch_id),
        "owner": owner_digest(scope),
        "number": len(messages),
        "moment": times.now,
    }
    if len(messages) == 1:
        return _append_one(connection, keys, messages[0], origin, times)
    moved = connection.execute(_MOVE, keys).one_or_none()
    if moved is None:
        return None
    entries = [
        PendingMessage(position=position, message=message, origin=origin)
        for position, message in enumerate(messages, moved.head - len(messages) + 1)
    ]
    stored, chain = insert_entries(connection, branch_id, entries, times, moved.chain)
    connection.execute(SET_CHAIN, {"branch": branch_id, "new_chain": chain})
    return stored


def _append_one(
    connection: Connection, keys: dict[str, Any], message: Message, origin: Origin, times: Times
) -> tuple[StoredMessage, ...] | None:
    """Advance the chain in the database: its row is read and written in one statement."""
    columns = {**encode(message), "origin": origin.value, **times.columns()}
    keys["content"] = seal(columns)
    branch_id = keys["branch"]
    if connection.dialect.name == "postgresql":
        given = {f"new_{name}": value for name, value in columns.items()}
        row = connection.execute(_ADVANCE_AND_INSERT, {**keys, **given}).one_or_none()
        if row is None:
            return None
        row_id, position = row.id, row.position
    else:
        moved = connection.execute(_ADVANCE, keys).one_or_none()
        if moved is None:
            return None
        position = moved.head
        place = {"branch_id": branch_id, "position": position, "link": moved.chain}
        row_id = connection.execute(_INSERT, {**place, **columns}).scalar_one()
    entry = PendingMessage(position=position, message=message, origin=origin)
    return (_to_stored(row_id, entry, branch_id, times),)


def insert_entries(
    connection: Connection,
    branch_id: BranchId,
    entries: Sequence[PendingMessage],
    times: Times,
    chain: bytes | None,
) -> tuple[tuple[StoredMessage, ...], bytes | None]:
    """
    Insert *entries* after the link *chain*; return the stored messages and the newest link.

    The caller holds the lock of the branch, and writes the link to it.
    """
    rows = [
        {
            "branch_id": branch_id,
            "position": entry.position,
            "origin": entry.origin.value,
            **times.columns(),
            **encode(entry.message),
        }
        for entry in entries
    ]
    newest = linked(chain, rows)
    # A single row is the usual case, and much cheaper than a list of one.
    one = len(rows) == 1
    added = connection.execute(_INSERT, rows[0]) if one else connection.execute(_INSERT_MANY, rows)
    stored = tuple(
        _to_stored(row_id, entry, branch_id, times)
        for row_id, entry in zip(added.scalars(), entries, strict=True)
    )
    return stored, newest


def _to_stored(
    row_id: int, entry: PendingMessage, branch_id: BranchId, times: Times
) -> StoredMessage:
    return StoredMessage(
        id=MessageId(row_id),
        branch_id=branch_id,
        position=entry.position,
        message=entry.message,
        origin=entry.origin,
        created_at=times.created_at,
        stored_at=times.columns()["stored_at"],
    )
