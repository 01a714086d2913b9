"""Rows of pins: finding, locking and reading."""

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, func, or_, select
from sqlalchemy.orm import aliased

from agentmem.errors import ConflictError, PinNotFoundError
from agentmem.store.chain.pin_chain import lock_main
from agentmem.store.database.damage import check_row, reading
from agentmem.store.database.schema import (
    AnyRow,
    BranchRow,
    OwnerRow,
    PinRow,
    PinVersionRow,
    SessionRow,
)
from agentmem.store.transcript.branches import find_branch, is_line, lineage
from agentmem.types import BranchId, Pin, PinScope, Scope

PIN_COLUMNS: Final = (
    PinRow.id,
    PinRow.scope,
    PinRow.target_id,
    PinRow.key,
    PinVersionRow.version,
    PinVersionRow.text,
    PinVersionRow.author,
    PinVersionRow.created_at,
    PinVersionRow.made_from,
)
NEWEST: Final = (
    select(*PIN_COLUMNS)
    .join(
        PinVersionRow,
        (PinVersionRow.pin_id == PinRow.id) & (PinVersionRow.version == PinRow.version),
    )
    .order_by(PinRow.id)
)
_LATER: Final = aliased(PinVersionRow)
_MOMENT: Final = bindparam("moment", type_=_LATER.created_at.type)
_WAS_SET: Final = or_(
    _LATER.after_message < bindparam("message"),
    and_(_LATER.after_message.is_(None), _LATER.created_at <= _MOMENT),
)
AS_OF: Final = (
    select(*PIN_COLUMNS)
    .join(
        PinVersionRow,
        (PinVersionRow.pin_id == PinRow.id)
        & (
            PinVersionRow.version
            == select(func.max(_LATER.version))
            .where(_LATER.pin_id == PinRow.id, _WAS_SET)
            .scalar_subquery()
        ),
    )
    .order_by(PinRow.id)
)
_ONE: Final = NEWEST.where(
    PinRow.scope == bindparam("where"),
    PinRow.target_id == bindparam("target"),
    PinRow.key == bindparam("pin_key"),
)


def target_of(branch: AnyRow, pin_scope: PinScope) -> dict[str, Any]:
    """Return the owner columns of a pin of this scope."""
    of_session = {"session_id": branch.session_id, "branch_id": None}
    target_id, references = {
        PinScope.USER: (branch.owner_id, {"session_id": None, "branch_id": None}),
        PinScope.SESSION: (branch.session_id, of_session),
        PinScope.BRANCH: (branch.id, {**of_session, "branch_id": branch.id}),
    }[pin_scope]
    names = {"scope": pin_scope.value, "target_id": target_id, "owner_id": branch.owner_id}
    return {**names, **references}


def lock_target(
    connection: Connection, scope: Scope, branch_id: BranchId, pin_scope: PinScope
) -> dict[str, Any]:
    """Lock the pins of that owner until the transaction ends."""
    target = target_of(find_branch(connection, scope, branch_id), pin_scope)
    _lock(connection, target)
    return target


def lock_pins(
    connection: Connection,
    scope: Scope,
    branch_id: BranchId,
    key: str,
    pin_scope: PinScope | None,
) -> list[tuple[dict[str, Any], AnyRow]]:
    """As `find_pins`, and lock them until the transaction ends."""
    branch = find_branch(connection, scope, branch_id)
    for targets in _where_to_look(connection, branch, pin_scope):
        for target in targets:
            _lock(connection, target)
    return find_pins(connection, scope, branch_id, key, pin_scope)


def find_pins(
    connection: Connection,
    scope: Scope,
    branch_id: BranchId,
    key: str,
    pin_scope: PinScope | None,
) -> list[tuple[dict[str, Any], AnyRow]]:
    """
    Read the pins of *key* on a branch, each with its owner.

    Without a *pin_scope* these are the conversation's: of a session the session's and its line's,
    or the user's if there are none; of a subtask the subtask's.

    Raises:
        PinNotFoundError: it was never set in that scope.
        SessionNotFoundError: no such branch of this scope.
    """
    branch = find_branch(connection, scope, branch_id)
    seen = {holder.id: stop for holder, _, stop in lineage(connection, branch)}
    for targets in _where_to_look(connection, branch, pin_scope):
        found = [
            (target, row)
            for target in targets
            if (row := find_pin(connection, target, key)) is not None and is_seen(row, seen)
        ]
        if found:
            return found
    where = "" if pin_scope is None else f" of the scope {pin_scope.value}"
    raise PinNotFoundError(f"there is no pin {key!r}{where}")


def is_seen(row: AnyRow, seen: Mapping[int, int]) -> bool:
    """Whether a line has the source message of a pin; *seen* has the ends of its branches."""
    # A corrupt one is found too, so that it can be deleted.
    return not isinstance(row.made_from, int) or row.made_from <= seen[row.target_id]


def _where_to_look(
    connection: Connection, branch: AnyRow, pin_scope: PinScope | None
) -> list[list[dict[str, Any]]]:
    if pin_scope is not None:
        return [[target_of(branch, pin_scope)]]
    if not is_line(branch):
        return [[target_of(branch, PinScope.BRANCH)]]
    line = [holder for holder, _, _ in lineage(connection, branch)]
    # Lock order: the older branch first.
    of_line = [target_of(holder, PinScope.BRANCH) for holder in reversed(line)]
    own = [*of_line, target_of(branch, PinScope.SESSION)]
    return [own, [target_of(branch, PinScope.USER)]]


def _lock(connection: Connection, target: dict[str, Any]) -> None:
    tables: dict[PinScope, type[OwnerRow | SessionRow | BranchRow]] = {
        PinScope.USER: OwnerRow,
        PinScope.SESSION: SessionRow,
        PinScope.BRANCH: BranchRow,
    }
    table = tables[PinScope(target["scope"])]
    if table is SessionRow:
        # Lock order, as in deletions: the branch before its session.
        lock_main(connection, target["session_id"])
    # A weak lock, which allows inserts of rows that refer to the locked one.
    lock = select(table.id).where(table.id == target["target_id"]).with_for_update(key_share=True)
    connection.execute(lock)


def find_pin(connection: Connection, target: dict[str, Any], key: str) -> AnyRow | None:
    """Read the newest version of a pin, also a removal."""
    keys = {"where": target["scope"], "target": target["target_id"], "pin_key": key}
    return connection.execute(_ONE, keys).one_or_none()


def check_pin(row: AnyRow) -> AnyRow:
    """
    Return *row*, a version of a pin, if each column has a value of its type.

    Raises:
        DamagedRowError: one does not.
    """
    check_row("pin_version", row)
    check_row("pin", row)
    return row


def expect_version(found: AnyRow | None, key: str, expected_version: int | None) -> None:
    """
    Check that *expected_version* is the newest version; 0 is that of a missing pin.

    Raises:
        ConflictError: it is not.
    """
    version = found.version if found is not None else 0
    if expected_version is not None and expected_version != version:
        raise ConflictError(
            f"pin {key!r} is at version {version}, not {expected_version}: another writer changed "
            "it first; read it again and decide again"
        )


@reading("pin_version")
def to_pin(row: AnyRow) -> Pin:
    """Return the value of a row."""
    return Pin(
        key=row.key,
        version=row.version,
        text=row.text or "",
        scope=PinScope(row.scope),
        author=row.author,
        created_at=row.created_at,
        is_removed=row.text is None,
        made_from=row.made_from,
    )
