"""
Pins in the hash chain: each version that is written or deleted is an event of a branch.

That is the pin's own branch, and for pins of a session its main one. Pins of a user have a separate
chain (see `user_chain`).
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from agentmem.errors import DamagedRowError
from agentmem.store.chain.branch_chain import PIN_COLUMNS, add_event, changes_of, pin_digest
from agentmem.store.chain.user_chain import add_user_event
from agentmem.store.database.damage import check_row
from agentmem.store.database.schema import (
    AnyRow,
    BranchRow,
    EventRow,
    PinRow,
    PinVersionRow,
    UserEventRow,
)
from agentmem.types import PinScope

EVENT: Final = "pins"
_NO_DIGEST: Final = ""
_MAIN: Final = select(BranchRow.id).where(
    BranchRow.session_id == bindparam("session"), BranchRow.parent_id.is_(None)
)
_LOCK_MAIN: Final = _MAIN.with_for_update()
VERSIONS: Final = select(
    PinRow.scope,
    PinRow.key,
    PinRow.owner_id,
    PinRow.session_id,
    PinRow.branch_id,
    PinVersionRow.nonce,
    *(getattr(PinVersionRow, name) for name in PIN_COLUMNS),
).join(PinVersionRow, PinVersionRow.pin_id == PinRow.id)
_OF_PIN: Final = VERSIONS.where(PinRow.id == bindparam("pin"))
_OF_SESSION: Final = VERSIONS.where(
    PinRow.session_id == bindparam("session"), PinRow.scope != PinScope.USER.value
)
_OF_USER: Final = VERSIONS.where(
    PinRow.owner_id == bindparam("owner"), PinRow.scope == PinScope.USER.value
)
_NOTED_OF_USER: Final = (
    select(UserEventRow.content)
    .where(UserEventRow.owner_id == bindparam("owner"))
    .order_by(UserEventRow.id)
)
_NOTED: Final = (
    select(EventRow.content)
    .join(BranchRow, BranchRow.id == EventRow.branch_id)
    .where(BranchRow.session_id == bindparam("session"), EventRow.kind == EVENT)
    .order_by(EventRow.id)
)
_MADE_FROM: Final = (
    select(PinVersionRow.pin_id)
    .distinct()
    .where(
        PinVersionRow.made_from == bindparam("place"),
        PinVersionRow.pin_id.in_(select(PinRow.id).where(PinRow.branch_id == bindparam("holder"))),
    )
)


def lock_main(connection: Connection, session_id: int) -> None:
    """Lock the main branch, whose chain has the pins of its session."""
    connection.execute(_LOCK_MAIN, {"session": session_id})


def digest_of(row: AnyRow) -> str:
    """Return the hash of a version that `VERSIONS` selects; empty if it is corrupt."""
    columns = row._asdict()
    try:
        check_row("pin_version", row)
        check_row("pin", row)
        return pin_digest(row.nonce, columns, columns).hex()
    except DamagedRowError:
        return _NO_DIGEST


def digests_of(connection: Connection, pins: Iterable[int]) -> set[str]:
    """
    Return the hashes of all versions of *pins*.

    For corrupt versions they are the hashes in the chain of the session or user that match no
    version, if there are not more of these.
    """
    rows = [row for pin in pins for row in connection.execute(_OF_PIN, {"pin": pin})]
    digests = [digest_of(row) for row in rows]
    num_lost = digests.count(_NO_DIGEST)
    found = set(digests) - {_NO_DIGEST}
    if num_lost:
        orphans = _orphans(connection, rows[0])
        if len(orphans) <= num_lost:
            found |= orphans
    return found


def _orphans(connection: Connection, row: AnyRow) -> set[str]:
    """Return the hashes in the chain of a pin's session or user that match no version."""
    keys = {"session": row.session_id, "owner": row.owner_id}
    is_own = row.scope == PinScope.USER.value
    noted: set[str] = set()
    for content in connection.scalars(_NOTED_OF_USER if is_own else _NOTED, keys):
        added, removed = changes_of(content)
        noted = (noted | added) - removed
    rows = connection.execute(_OF_USER if is_own else _OF_SESSION, keys)
    return noted - {digest_of(one) for one in rows}


def made_from(connection: Connection, holder: int, position: int) -> list[int]:
    """Return the automatic pins of the message at *position* of the branch *holder*."""
    keys = {"holder": holder, "place": position}
    return list(connection.execute(_MADE_FROM, keys).scalars())


def note_pins(
    connection: Connection,
    target: dict[str, Any],
    *,
    added: AbstractSet[str] = frozenset(),
    removed: AbstractSet[str] = frozenset(),
) -> None:
    """Add an event of added and removed versions; *target* is the owner of their pin."""
    if added == removed:
        return
    if target["scope"] == PinScope.USER:
        add_user_event(connection, target["target_id"], added=added, removed=removed)
        return
    branch_id = target["branch_id"]
    if branch_id is None:
        branch_id = connection.execute(_MAIN, {"session": target["session_id"]}).scalar_one()
    changes = {"added": sorted(added - removed), "removed": sorted(removed - added)}
    add_event(connection, branch_id, EVENT, changes)
