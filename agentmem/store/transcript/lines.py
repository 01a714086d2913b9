"""
The lines of a session: alternative continuations from some position on.

A line is a branch that inherits its parent up to there, like a subtask that inherits all; but the
session itself continues on it. The current one has the largest number. The others are kept, but are
not part of the session's prompts and searches.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, func, select, update

from agentmem.errors import InvalidInputError
from agentmem.store.database.database import Database
from agentmem.store.database.schema import AnyRow, BranchRow, SessionRow
from agentmem.store.database.tenancy import check_position, not_found
from agentmem.store.transcript.branches import (
    ancestors,
    find_branch,
    find_branches,
    is_line,
    to_branch_info,
)
from agentmem.store.transcript.fast_append import Times
from agentmem.store.transcript.messages import append_legal
from agentmem.store.transcript.sessions import insert_branch
from agentmem.store.transcript.tool_calls import inherit_open_calls
from agentmem.types import (
    BranchId,
    BranchInfo,
    Inherit,
    Message,
    Origin,
    Scope,
    SessionId,
    StoredMessage,
    check_name,
)

_ASIDE: Final = -1
"""Number of a line before the session switches to it: less than that of ``main``."""

_LOCK_SESSION: Final = (
    select(SessionRow.id)
    .where(SessionRow.id == bindparam("session"))
    .with_for_update(key_share=True)
)
_LARGEST: Final = select(func.max(BranchRow.line)).where(
    BranchRow.session_id == bindparam("session")
)
_SET_LINE: Final = (
    update(BranchRow).where(BranchRow.id == bindparam("branch")).values(line=bindparam("number"))
)


class Lines:
    """Creates lines, and switches sessions to them."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def begin(
        self, scope: Scope, branch_id: BranchId, *, at: int, name: str, aside: bool = False
    ) -> BranchInfo:
        """
        Create a line that inherits *branch_id* up to position *at*, and switch the session to it.

        Open calls are inherited too. With *aside* the session does not switch.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: it is a subtask, or has no position *at*; or *name* cannot be stored.
        """
        check_name("branch name", name)
        check_position("at", at)

        def work(connection: Connection) -> AnyRow:
            return self._begin(connection, scope, branch_id, at, name, aside=aside)

        return to_branch_info(self._database.write(work))

    def edit(
        self, scope: Scope, branch_id: BranchId, *, at: int, message: Message, name: str
    ) -> StoredMessage:
        """
        Create a line as `begin` does, with *message* after position *at*, atomically.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: as for `begin`.
            TranscriptError: *message* is a result without an open call there.
        """
        check_name("branch name", name)

        def work(connection: Connection) -> StoredMessage:
            begun = self._begin(connection, scope, branch_id, at, name)
            times = Times(now=self._clock())
            return append_legal(connection, begun, [message], Origin.SAID, times)[-1]

        return self._database.write(work)

    def switch(self, scope: Scope, session_id: SessionId, branch_id: BranchId) -> BranchInfo:
        """
        Switch a session to one of its lines.

        Raises:
            SessionNotFoundError: the line does not exist.
        """

        def work(connection: Connection) -> AnyRow:
            rows = find_branches(connection, scope, session_id)
            found = next((row for row in rows if row.id == branch_id and is_line(row)), None)
            if found is None:
                raise not_found("line", branch_id, scope)
            _activate(connection, session_id, branch_id)
            return found

        return to_branch_info(self._database.write(work))

    def _begin(  # noqa: PLR0913 - a line, and where it comes from
        self,
        connection: Connection,
        scope: Scope,
        branch_id: BranchId,
        at: int,
        name: str,
        *,
        aside: bool = False,
    ) -> AnyRow:
        origin = find_branch(connection, scope, branch_id)
        if not is_line(origin):
            raise InvalidInputError(f"branch {branch_id} is a subtask, and has one line only")
        if not 0 <= at <= origin.head:
            raise InvalidInputError(
                f"cannot branch off at position {at}: this line has {origin.head} messages"
            )
        # The parent is the branch that stores the position, so repeated regeneration does not nest.
        holder = origin
        for above in ancestors(connection, origin):
            if at > holder.forked_at:
                break
            holder = above
        # Lock order, as in deletions: the branch before its session.
        find_branch(connection, scope, BranchId(holder.id), lock=True)
        connection.execute(_LOCK_SESSION, {"session": origin.session_id})
        begun = insert_branch(
            connection,
            session_id=origin.session_id,
            parent_id=holder.id,
            name=name,
            forked_at=at,
            head=at,
            inherit=Inherit.ALL.value,
            updated_at=self._clock(),
            line=_ASIDE,
        )
        inherit_open_calls(connection, holder, child=begun, at=at)
        if not aside:
            _activate(connection, origin.session_id, begun)
        return find_branch(connection, scope, begun)


def _activate(connection: Connection, session_id: int, branch_id: BranchId) -> None:
    connection.execute(_LOCK_SESSION, {"session": session_id})
    largest = connection.execute(_LARGEST, {"session": session_id}).scalar_one() or 0
    keys = {"branch": branch_id, "number": max(int(largest), 0) + 1}
    connection.execute(_SET_LINE, keys)
