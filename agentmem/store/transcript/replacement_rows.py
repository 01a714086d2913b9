"""Rows of replacements: from rows to values, which of them a branch sees, and their deletion."""

from collections.abc import Iterable
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, or_, select

from agentmem.store.chain.replacement_chain import note_replacements, sealed_replacement
from agentmem.store.database.damage import damaged, reading
from agentmem.store.database.schema import AnyRow, ReplacementRow
from agentmem.store.transcript.branches import find_branches, holder_of, lineage
from agentmem.types import (
    BranchId,
    Inherit,
    Replacement,
    ReplacementAuthor,
    Scope,
    SessionId,
)

OF_BRANCHES: Final = (
    select(ReplacementRow.__table__)
    .where(ReplacementRow.branch_id.in_(bindparam("branches", expanding=True)))
    .order_by(ReplacementRow.branch_id, ReplacementRow.old)
)
_AT: Final = OF_BRANCHES.where(
    or_(ReplacementRow.old == bindparam("place"), ReplacementRow.new == bindparam("place"))
)
DELETE: Final = delete(ReplacementRow).where(
    ReplacementRow.branch_id == bindparam("holder"), ReplacementRow.old == bindparam("place")
)


@reading("replacement")
def to_replacement(row: Any) -> Replacement:
    """Return the value of a row."""
    if not 1 <= row.old < row.new:
        raise damaged("replacement", row, "new", f"{row.old} is not before {row.new}")
    return Replacement(
        branch_id=BranchId(row.branch_id),
        old=row.old,
        new=row.new,
        author=ReplacementAuthor(row.author),
        created_at=row.created_at,
    )


def seen_replacements(
    connection: Connection, branch: AnyRow, last: int | None = None
) -> dict[int, AnyRow]:
    """
    Return the replacements that a branch sees, by the position of the replaced message.

    Its own, and those of its ancestors up to the forks, but not through a fork that inherits pins
    only. Of two for one message the innermost branch's counts. With *last* only those up to that
    newest message.
    """
    ends: dict[int, int] = {}
    for holder, _, stop in lineage(connection, branch, last):
        ends[holder.id] = stop
        if holder.inherit == Inherit.PINS:
            break
    rows = connection.execute(OF_BRANCHES, {"branches": list(ends)}).all()
    inner_last = sorted(rows, key=lambda row: row.branch_id)
    return {row.old: row for row in inner_last if _is_until(row.new, ends[row.branch_id])}


def _is_until(new: object, stop: int) -> bool:
    # A corrupt row is an error when it is read.
    return not isinstance(new, int) or new <= stop


def forget_replacements(
    connection: Connection, scope: Scope, session_id: int, holder: int, position: int
) -> None:
    """
    Delete the replacements of a message, and by it, that the branch *holder* stores.

    The caller holds the locks of all branches.
    """
    branches = {row.id: row for row in find_branches(connection, scope, SessionId(session_id))}
    keys = {"branches": list(branches), "place": position}
    rows = connection.execute(_AT, keys).all()
    drop(
        connection,
        (row for row in rows if holder_of(connection, branches[row.branch_id], position) == holder),
    )


def drop(connection: Connection, rows: Iterable[AnyRow]) -> None:
    """Delete *rows*, with an event in the chain of each one's branch."""
    for row in rows:
        connection.execute(DELETE, {"holder": row.branch_id, "place": row.old})
        removed = {sealed_replacement(row)}
        note_replacements(connection, row.branch_id, added=set(), removed=removed)
