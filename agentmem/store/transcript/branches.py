"""Reading and locking branches, for all other parts of the store."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    bindparam,
    case,
    func,
    literal,
    select,
    update,
)

from agentmem.errors import ConflictError
from agentmem.store.database.damage import check_row, damaged
from agentmem.store.database.database import SNAPSHOT_CACHE
from agentmem.store.database.schema import AnyRow, AnySelect, BranchRow, OwnerRow, SessionRow
from agentmem.store.database.tenancy import check_id, is_owner, not_found, owner_digest
from agentmem.types import BranchId, BranchInfo, BranchState, Inherit, Scope, SessionId

_ANY: Final[AnySelect] = (
    select(
        BranchRow.id,
        BranchRow.session_id,
        BranchRow.parent_id,
        BranchRow.name,
        BranchRow.forked_at,
        BranchRow.head,
        BranchRow.open_calls,
        BranchRow.inherit,
        BranchRow.state,
        BranchRow.line,
        BranchRow.chain,
        BranchRow.log_chain,
        SessionRow.owner_id,
    )
    .join(SessionRow, SessionRow.id == BranchRow.session_id)
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
)
_UP: Final = (
    select(BranchRow.id, BranchRow.parent_id, literal(0).label("depth"))
    .where(BranchRow.id == bindparam("branch"))
    .cte("up", recursive=True)
)
_CHAIN: Final = _UP.union_all(
    select(BranchRow.id, BranchRow.parent_id, _UP.c.depth + 1).join(
        # A branch is newer than its parent. A corrupt row could make this loop endless.
        _UP,
        (BranchRow.id == _UP.c.parent_id) & (BranchRow.id < _UP.c.id),
    )
)
_ANCESTORS: Final = _ANY.join(_CHAIN, _CHAIN.c.id == BranchRow.id).order_by(_CHAIN.c.depth)
_BRANCH: Final = _ANY.where(is_owner())
_ONE: Final = _BRANCH.where(BranchRow.id == bindparam("branch"))
# Only the branch: locking the session too would serialize writers of its subtasks.
_LOCKED: Final = _ONE.with_for_update(of=BranchRow)
_OF_SESSION: Final = _BRANCH.where(BranchRow.session_id == bindparam("session")).order_by(
    BranchRow.id
)
BRANCHES_OF_SESSION: Final = select(BranchRow.id).where(
    BranchRow.session_id == bindparam("session")
)
LOCK_IN_ORDER: Final = (
    select(BranchRow.id)
    .where(BranchRow.id.in_(bindparam("branches", expanding=True)))
    .order_by(BranchRow.id)
    .with_for_update()
)


def latest() -> ColumnElement[datetime]:
    """
    Return the SQL maximum of a branch's `updated_at` and the parameter *moment*.

    A clock that was set back does not make a branch older.
    """
    moment = bindparam("moment", type_=BranchRow.updated_at.type)
    return case((BranchRow.updated_at < moment, moment), else_=BranchRow.updated_at)


_SET_STATE: Final = (
    update(BranchRow)
    .where(BranchRow.id == bindparam("branch"))
    .values(state=bindparam("new"), updated_at=latest())
)
_TOUCH: Final = (
    update(BranchRow).where(BranchRow.id == bindparam("branch")).values(updated_at=latest())
)
_LATEST_OF: Final = select(func.max(BranchRow.updated_at)).where(
    BranchRow.id.in_(bindparam("branches", expanding=True))
)

_STATES: Final = frozenset(BranchState)
_INHERITS: Final = frozenset(Inherit)


def find_branch(
    connection: Connection, scope: Scope, branch_id: BranchId, *, lock: bool = False
) -> AnyRow:
    """
    Read a branch; with *lock*, lock it against other writers until the transaction ends.

    Raises:
        SessionNotFoundError: no such branch of this scope.
    """
    check_id("branch", branch_id)
    remembered: dict[Any, AnyRow] = connection.get_execution_options().get(SNAPSHOT_CACHE, {})
    if not lock and (known := remembered.get((scope, branch_id))) is not None:
        return known
    statement = _LOCKED if lock else _ONE
    row = connection.execute(
        statement, {"branch": branch_id, "owner": owner_digest(scope)}
    ).one_or_none()
    if row is None:
        raise not_found("branch", branch_id, scope)
    check_branch(row)
    remembered[scope, branch_id] = row
    return row


def change_state(
    connection: Connection,
    locked: AnyRow,
    *,
    expected: BranchState,
    state: BranchState,
    moment: datetime,
) -> None:
    """
    Set the state of a locked branch.

    Raises:
        ConflictError: it is not in the state *expected*; nothing was changed.
    """
    if locked.state != expected:
        raise ConflictError(
            f"branch {locked.id} is {locked.state}, not {expected.value}: another writer changed "
            "first; read it again and decide again"
        )
    connection.execute(_SET_STATE, {"branch": locked.id, "new": state.value, "moment": moment})


def hand_up_age(connection: Connection, branch_id: int, doomed: Sequence[int]) -> None:
    """Update a branch's activity time from descendants before their deletion."""
    moment = connection.execute(_LATEST_OF, {"branches": list(doomed)}).scalar_one_or_none()
    if moment is not None:
        connection.execute(_TOUCH, {"branch": branch_id, "moment": moment})


def find_branches(connection: Connection, scope: Scope, session_id: SessionId) -> list[AnyRow]:
    """
    Read all branches of a session, oldest first.

    Raises:
        SessionNotFoundError: no such session of this scope.
        DamagedRowError: one is corrupt.
    """
    check_id("session", session_id)
    rows = connection.execute(
        _OF_SESSION, {"session": session_id, "owner": owner_digest(scope)}
    ).all()
    if not rows:
        raise not_found("session", session_id, scope)
    for row in rows:
        check_branch(row)
    return list(rows)


def lineage(
    connection: Connection, branch: AnyRow, last: int | None = None
) -> Iterator[tuple[AnyRow, int, int]]:
    """
    Iterate from *branch* to ``main``: each branch, and its first and last position in the view.

    A branch contributes its own messages up to the fork of its child; possibly none.
    A reader of *branch* may read its ancestors, which are of the same session.
    """
    limit = branch.head if last is None else min(last, branch.head)
    yield branch, branch.forked_at + 1, limit
    limit = min(limit, branch.forked_at)
    for above in ancestors(connection, branch):
        yield above, above.forked_at + 1, limit
        limit = min(limit, above.forked_at)


def lock_branches(connection: Connection, session_id: int) -> None:
    """Lock all branches of a session, in order: what concerns several of them cannot deadlock."""
    branches = connection.execute(BRANCHES_OF_SESSION, {"session": session_id}).scalars().all()
    connection.execute(LOCK_IN_ORDER, {"branches": branches})


def holder_of(connection: Connection, branch: AnyRow, position: int) -> int:
    """Return the id of the branch that stores the message at *position* of a view."""
    for holder, start, _ in lineage(connection, branch):
        if position >= start:
            return int(holder.id)
    raise damaged("branch", branch, "forked_at", f"no branch has position {position}")


def ancestors(connection: Connection, branch: AnyRow) -> Sequence[AnyRow]:
    """Read the ancestors of *branch*, from its parent to ``main``, in one query."""
    if branch.parent_id is None:
        return ()
    remembered: dict[Any, Any] = connection.get_execution_options().get(SNAPSHOT_CACHE, {})
    known: Sequence[AnyRow] | None = remembered.get(branch.parent_id)
    if known is None:
        known = connection.execute(_ANCESTORS, {"branch": branch.parent_id}).all()
        for row in known:
            check_branch(row)
        if not known or known[-1].parent_id is not None:
            raise damaged("branch", branch, "parent_id", "the parent branch does not exist")
        if any(row.session_id != branch.session_id for row in known):
            raise damaged(
                "branch", branch, "parent_id", "the parent branch belongs to another session"
            )
        remembered[branch.parent_id] = known
    return known


def check_branch(row: AnyRow) -> None:
    """
    Check that a row of a branch is readable and consistent.

    Raises:
        DamagedRowError: it is not.
    """
    check_row("branch", row)
    if row.parent_id is not None and not 0 < row.parent_id < row.id:
        raise damaged("branch", row, "parent_id", f"{row.parent_id} is not an older branch")
    if not 0 <= row.forked_at <= row.head:
        raise damaged("branch", row, "head", f"{row.forked_at} to {row.head} is not a range")
    if row.open_calls < 0:
        raise damaged("branch", row, "open_calls", f"{row.open_calls} is not a number of calls")
    if row.state not in _STATES:
        raise damaged("branch", row, "state", f"{row.state!r:.80} is not a state")
    if row.inherit not in _INHERITS:
        raise damaged("branch", row, "inherit", f"{row.inherit!r:.80} is not an inherit mode")


def is_whole_branch(row: AnyRow) -> bool:
    """Whether the positions of a branch are consistent."""
    numbers = (row.id, row.session_id, row.forked_at, row.head)
    is_whole = all(type(one) is int for one in numbers) and type(row.parent_id) in {int, type(None)}
    return is_whole and row.id > 0 and row.session_id > 0 and 0 <= row.forked_at <= row.head


def is_line(row: AnyRow) -> bool:
    """Whether a branch is a line of a session, not a subtask."""
    return row.parent_id is None or row.line is not None


def to_branch_info(row: AnyRow) -> BranchInfo:
    """Return the value of a row of `find_branch`."""
    return BranchInfo(
        id=BranchId(row.id),
        session_id=SessionId(row.session_id),
        name=row.name,
        parent=None if row.parent_id is None else BranchId(row.parent_id),
        forked_at=row.forked_at,
        head=row.head,
        inherit=Inherit(row.inherit),
        state=BranchState(row.state),
        is_line=is_line(row),
    )
