"""The two statements of an append that no call stands in the way of; PostgreSQL has them as one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, cast, exists, insert, select, update

from agentmem.store.branches import latest
from agentmem.store.calls import Entry
from agentmem.store.codec import encode
from agentmem.store.schema import BranchRow, MessageRow, OwnerRow, SessionRow
from agentmem.store.scoping import check_id, is_owner, owner_digest
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
_ADVANCE: Final = (
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
    .returning(BranchRow.head)
)
_MOVED: Final = _ADVANCE.cte("moved")
_GIVEN: Final = [
    column
    for column in MessageRow.__table__.columns
    if column.name not in {"id", "branch_id", "position"}
]
# The branch stays locked from its update to the commit: one round trip less in between is what
# writers of one session wait less for each other.
_ADVANCE_AND_INSERT: Final = (
    insert(MessageRow)
    .from_select(
        ["branch_id", "position", *(column.name for column in _GIVEN)],
        select(
            cast(bindparam("branch"), BranchRow.id.type),
            _MOVED.c.head,
            *(cast(bindparam(f"new_{c.name}", type_=c.type), c.type) for c in _GIVEN),
        ),
    )
    .returning(MessageRow.id, MessageRow.position)
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """When something is stored, and when it was said if that was another time."""

    now: datetime
    said_at: datetime | None = None

    @property
    def created_at(self) -> datetime:
        """When it was said."""
        return self.now if self.said_at is None else self.said_at

    def columns(self) -> dict[str, datetime | None]:
        """Return the columns of a message that tell it."""
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

    None, and nothing is stored, if it takes a closer look: there is no such branch, it is not
    open, it has open calls, or *messages* make or answer any.
    """
    if any(message.tool_calls or message.role is Role.TOOL for message in messages):
        return None
    keys = {
        "branch": check_id("branch", branch_id),
        "owner": owner_digest(scope),
        "number": len(messages),
        "moment": times.now,
    }
    if len(messages) == 1 and connection.dialect.name == "postgresql":
        given = {**encode(messages[0]), "origin": origin.value, **times.columns()}
        columns = {f"new_{name}": value for name, value in given.items()}
        row = connection.execute(_ADVANCE_AND_INSERT, {**keys, **columns}).one_or_none()
        if row is None:
            return None
        entry = Entry(position=row.position, message=messages[0], origin=origin)
        return (_to_stored(row.id, entry, branch_id, times),)
    head = connection.execute(_ADVANCE, keys).scalar_one_or_none()
    if head is None:
        return None
    entries = [
        Entry(position=position, message=message, origin=origin)
        for position, message in enumerate(messages, head - len(messages) + 1)
    ]
    return insert_entries(connection, branch_id, entries, times)


def insert_entries(
    connection: Connection, branch_id: BranchId, entries: Sequence[Entry], times: Times
) -> tuple[StoredMessage, ...]:
    """Write *entries* and give them as they are stored. The caller holds the branch."""
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
    # One row is the usual case, and much cheaper than a list of one.
    one = len(rows) == 1
    added = connection.execute(_INSERT, rows[0]) if one else connection.execute(_INSERT_MANY, rows)
    return tuple(
        _to_stored(row_id, entry, branch_id, times)
        for row_id, entry in zip(added.scalars(), entries, strict=True)
    )


def _to_stored(row_id: int, entry: Entry, branch_id: BranchId, times: Times) -> StoredMessage:
    return StoredMessage(
        id=MessageId(row_id),
        branch_id=branch_id,
        position=entry.position,
        message=entry.message,
        origin=entry.origin,
        created_at=times.created_at,
        stored_at=times.columns()["stored_at"],
    )
