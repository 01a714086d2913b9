"""
Placeholders of corrupt or missing messages.

A placeholder has the position and, as far as known, the role of the message. The calls that it made
or answered are known from their own table, so that the transcript stays valid.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from agentmem.errors import DamagedRowError
from agentmem.store.database.damage import log_damaged
from agentmem.store.database.schema import AnyRow, BranchRow, MessageRow, ToolCallRow
from agentmem.types import (
    BranchId,
    Message,
    MessageId,
    Origin,
    Role,
    StoredMessage,
    TextPart,
    ToolCall,
)

_MOST_MISSING: Final = 1000
"""Maximum missing messages in one read; with more the branch itself is corrupt."""

_NO_MOMENT: Final = datetime.fromtimestamp(0, UTC)

_NEWEST: Final = select(func.max(MessageRow.position)).where(
    MessageRow.branch_id == bindparam("branch"), MessageRow.position <= bindparam("last")
)
_MADE: Final = (
    select(ToolCallRow.call_id, ToolCallRow.name, ToolCallRow.answered_at)
    .where(ToolCallRow.branch_id == bindparam("branch"), ToolCallRow.position == bindparam("place"))
    .order_by(ToolCallRow.id)
)
_ANSWERED: Final = (
    select(ToolCallRow.call_id, ToolCallRow.name)
    .where(
        ToolCallRow.branch_id == bindparam("branch"), ToolCallRow.answered_at == bindparam("place")
    )
    .limit(1)
)


def read_all(
    connection: Connection,
    rows: Sequence[AnyRow],
    read: Callable[[AnyRow], StoredMessage],
    bounds: tuple[int, int, int] | None = None,
) -> Iterator[StoredMessage]:
    """
    Decode *rows* of messages, with a placeholder for each corrupt one.

    With *bounds*, the branch and its expected first and last position, there is one for each
    missing message too.

    Raises:
        DamagedRowError: so many are missing that the branch itself must be corrupt.
    """
    expected = None if bounds is None else bounds[1]
    for row in rows:
        try:
            stored = read(row)
        except DamagedRowError:
            stored = stand_in(connection, row)
            if bounds is not None and not stored.position:
                continue
        if bounds is not None and expected is not None:
            yield from _missing(connection, bounds[0], expected, stored.position - 1)
            expected = stored.position + 1
        yield stored
    if bounds is not None and expected is not None:
        yield from _missing(connection, bounds[0], expected, bounds[2])


def stand_in(connection: Connection, row: Any) -> StoredMessage:
    """Return the placeholder of a corrupt message."""
    created_at = row.created_at if isinstance(row.created_at, datetime) else _NO_MOMENT
    # With an invalid position it is nowhere, and missing at the right one.
    position = row.position if type(row.position) is int and row.position > 0 else 0
    return _stand_in(
        connection, row.id, row.branch_id, position, role=row.role, created_at=created_at
    )


def is_stand_in(stored: StoredMessage) -> bool:
    """Whether a message equals the placeholder of its position."""
    message = stored.message
    plain = Message(
        role=message.role,
        parts=(_said(stored.position),),
        tool_calls=tuple(ToolCall(id=call.id, name=call.name) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
    )
    return message == plain


def _said(position: int) -> TextPart:
    return TextPart(text=f"[message {position} is damaged and cannot be read]")


def _missing(
    connection: Connection, branch_id: int, first: int, last: int
) -> Iterator[StoredMessage]:
    if first > last:
        return
    newest = connection.scalar(_NEWEST, {"branch": branch_id, "last": last})
    if last - (newest or 0) > _MOST_MISSING or last - first > _MOST_MISSING:
        raise _wrong_head(connection, branch_id, first, last)
    for position in range(first, last + 1):
        yield _stand_in(connection, 0, branch_id, position, role=None, created_at=_NO_MOMENT)


def _wrong_head(connection: Connection, branch_id: int, first: int, last: int) -> DamagedRowError:
    name = connection.scalar(select(BranchRow.name).where(BranchRow.id == branch_id))
    error = DamagedRowError(
        "branch",
        branch=name if isinstance(name, str) else None,
        reason=f"messages {first} to {last} are missing",
    )
    error._branch_id = branch_id  # noqa: SLF001 - `damage.guarded` looks up whose it is
    return error


def _stand_in(  # noqa: PLR0913 - the fields of a message
    connection: Connection,
    row_id: int,
    branch_id: int,
    position: int,
    *,
    role: object,
    created_at: datetime,
) -> StoredMessage:
    log_damaged(connection, "message", branch_id=branch_id, position=position)
    return StoredMessage(
        id=MessageId(row_id),
        branch_id=BranchId(branch_id),
        position=position,
        message=_message(connection, branch_id, position, role),
        origin=Origin.DAMAGED,
        created_at=created_at,
    )


def _message(connection: Connection, branch_id: int, position: int, role: object) -> Message:
    text = _said(position)
    place = {"branch": branch_id, "place": position}
    made = [
        row
        for row in connection.execute(_MADE, place)
        # A late result has a separate row, made and answered at one position.
        if row.answered_at != position and _is_name(row.call_id) and _is_name(row.name)
    ]
    answered = connection.execute(_ANSWERED, place).first()
    if answered is not None and _is_name(answered.call_id):
        return Message(role=Role.TOOL, parts=(text,), tool_call_id=answered.call_id)
    if made or role == Role.ASSISTANT:
        calls = tuple(ToolCall(id=row.call_id, name=row.name) for row in made)
        return Message(role=Role.ASSISTANT, parts=(text,), tool_calls=calls)
    return Message(role=Role.USER, parts=(text,))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value) and value.isprintable()
