"""
Pins in the hash chain: each version that is written or deleted is an event of a branch.

That is the pin's own branch, and for pins of a session its main one. Pins of a user are of no
session, and in no chain.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select

from agentmem.store.chain import PIN_COLUMNS, add_event, pin_digest
from agentmem.store.schema import AnyRow, BranchRow, PinRow, PinVersionRow
from agentmem.types import PinScope

EVENT: Final = "pins"
_MAIN: Final = select(BranchRow.id).where(
    BranchRow.session_id == bindparam("session"), BranchRow.parent_id.is_(None)
)
_LOCK_MAIN: Final = _MAIN.with_for_update()
VERSIONS: Final = select(
    PinRow.scope,
    PinRow.key,
    PinRow.branch_id,
    PinVersionRow.nonce,
    *(getattr(PinVersionRow, name) for name in PIN_COLUMNS),
).join(PinVersionRow, PinVersionRow.pin_id == PinRow.id)
_OF_PIN: Final = VERSIONS.where(PinRow.id == bindparam("pin"))
_MADE_FROM: Final = (
    select(PinVersionRow.pin_id)
    .distinct()
    .where(
        PinVersionRow.made_from == bindparam("place"),
        PinVersionRow.pin_id.in_(select(PinRow.id).where(PinRow.branch_id == bindparam("holder"))),
    )
)


def lock_main(connection: Connection, session_id: int) -> None:
    """Keep other writers off the main branch, whose chain has the pins of its session."""
    connection.execute(_LOCK_MAIN, {"session": session_id})


def digest_of(row: AnyRow) -> str:
    """Return the hash of a version that `VERSIONS` selects."""
    columns = row._asdict()
    return pin_digest(row.nonce, columns, columns).hex()


def digests_of(connection: Connection, pins: Iterable[int]) -> set[str]:
    """Return the hashes of all versions of *pins*."""
    rows = (row for pin in pins for row in connection.execute(_OF_PIN, {"pin": pin}))
    return {digest_of(row) for row in rows}


def made_from(connection: Connection, holder: int, position: int) -> list[int]:
    """Return the pins that were made of the message at *position* of the branch *holder*."""
    keys = {"holder": holder, "place": position}
    return list(connection.execute(_MADE_FROM, keys).scalars())


def note_pins(
    connection: Connection,
    target: dict[str, Any],
    *,
    added: AbstractSet[str] = frozenset(),
    removed: AbstractSet[str] = frozenset(),
) -> None:
    """Note in the chain which versions came and went; *target* says what their pin hangs on."""
    if target["scope"] == PinScope.USER or added == removed:
        return
    branch_id = target["branch_id"]
    if branch_id is None:
        branch_id = connection.execute(_MAIN, {"session": target["session_id"]}).scalar_one()
    changes = {"added": sorted(added - removed), "removed": sorted(removed - added)}
    add_event(connection, branch_id, EVENT, changes)
