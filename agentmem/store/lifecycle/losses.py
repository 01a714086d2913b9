"""
Messages lost to corruption, in the hash chain of their branch.

The content of such a message cannot be hashed, so its link cannot be verified. Its deletion is an
event that says so, and the chain continues from the stored link. If that is corrupt too, the event
has the hash of the next entry, which is verified that way.
"""

from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, cast, delete, insert, or_, select, update

from agentmem.errors import DamagedRowError
from agentmem.store.chain.branch_chain import event_digest, message_digest
from agentmem.store.database.damage import UNREADABLE
from agentmem.store.database.schema import AnyRow, BranchRow, EventRow, MessageRow
from agentmem.store.transcript.message_codec import decode
from agentmem.store.transcript.placeholders import is_stand_in
from agentmem.types import Origin

LOST: Final = "damaged"
NEXT: Final = "next"
_LINK_BYTES: Final = 32

_BRANCH: Final = select(BranchRow.forked_at, BranchRow.head, BranchRow.chain).where(
    BranchRow.id == bindparam("branch")
)
_AT: Final = select(MessageRow.__table__).where(
    MessageRow.branch_id == bindparam("branch"), MessageRow.position == bindparam("place")
)
_EVENT_AT: Final = (
    select(EventRow.at, EventRow.kind, EventRow.content)
    .where(EventRow.branch_id == bindparam("branch"), EventRow.at == bindparam("place"))
    .order_by(EventRow.id)
    .limit(1)
)


def link_of(row: AnyRow) -> bytes | None:
    """Return the link of a row; None where it is missing or invalid."""
    link = row.link
    return link if isinstance(link, bytes) and len(link) == _LINK_BYTES else None


def content_of(row: AnyRow) -> bytes | None:
    """Return the content hash of a message, deleted or not; None where it is unknown."""
    if row.sealed is not None:
        return row.sealed if isinstance(row.sealed, bytes) else None
    with suppress(*UNREADABLE):
        return message_digest(row.nonce, row._asdict())
    return None


def is_marked(row: AnyRow) -> bool:
    """Whether a row is the placeholder of a message that was lost before the import."""
    if row.origin != Origin.DAMAGED:
        return False
    with suppress(DamagedRowError):
        return is_stand_in(decode(row))
    return False


def loss(connection: Connection, branch_id: int, position: int, link: bytes | None) -> Any:
    """
    Return the link to keep for a lost message, and the content of its deletion event.

    The newest entry's link is also that of the branch, so it is known even if the row's is corrupt.
    """
    branch = connection.execute(_BRANCH, {"branch": branch_id}).one()
    keys = {"branch": branch_id, "place": position}
    event = connection.execute(_EVENT_AT, keys).first()
    if link is None and event is None and position == branch.head:
        link = branch.chain
    if link is not None:
        return link, {LOST: True}
    return None, {LOST: True, NEXT: _next(connection, keys, event)}


def _next(connection: Connection, keys: dict[str, int], event: AnyRow | None) -> str:
    if event is not None:
        return event_digest(event.at, event.kind, event.content).hex()
    row = connection.execute(_AT, {**keys, "place": keys["place"] + 1}).first()
    content = None if row is None else content_of(row)
    return "" if content is None else content.hex()


def restore_place(connection: Connection, branch_id: int, position: int) -> None:
    """
    Restore *position* for the only message of a branch with an invalid one, if one is missing.

    Ids ascend with positions, which shows whether it can be that one. If several can be, all their
    texts are deleted, so that the text of the missing message is deleted in any case.
    """
    branch = connection.execute(_BRANCH, {"branch": branch_id}).one()
    place = MessageRow.position
    own = MessageRow.branch_id == branch_id
    # SQLite may store a fraction.
    is_whole = place == cast(place, place.type)
    is_nowhere = or_(place <= branch.forked_at, place > branch.head, ~is_whole)
    found = connection.execute(select(MessageRow.id).where(own, is_nowhere)).scalars().all()
    before = connection.scalar(_nearest(branch_id, position, branch, is_before=True)) or 0
    after = connection.scalar(_nearest(branch_id, position, branch, is_before=False))
    fitting = [one for one in found if before < one and (after is None or one < after)]
    if len(fitting) == 1:
        moved = update(MessageRow).where(MessageRow.id == fitting[0]).values(position=position)
        connection.execute(moved)
    elif found:
        connection.execute(delete(MessageRow).where(own, is_nowhere))


def _nearest(branch_id: int, position: int, branch: AnyRow, *, is_before: bool) -> Any:
    place = MessageRow.position
    side = (place < position) & (place > branch.forked_at)
    if not is_before:
        side = (place > position) & (place <= branch.head)
    order = place.desc() if is_before else place
    own = select(MessageRow.id).where(MessageRow.branch_id == branch_id, side)
    return own.order_by(order).limit(1)


def insert_lost(connection: Connection, branch_id: int, position: int, columns: Any) -> int:
    """Insert a tombstone for a missing message, and return the row's id."""
    sealed = {"nonce": None, "sealed": message_digest(None, columns)}
    row = {"branch_id": branch_id, "position": position, **columns, **sealed}
    return int(connection.execute(insert(MessageRow).returning(MessageRow.id), row).scalar_one())
