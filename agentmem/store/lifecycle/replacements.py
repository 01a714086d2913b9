"""
Replacements: a later message has replaced the statement of an earlier one.

Both messages stay as they are. Summaries that cover the earlier one are stale: their texts are
deleted, and the next compaction writes one without it. A replacement is of the branch on which it
was found or set, and branches that begin after the later message inherit it. Since the later
message always has the larger position, replacements have no cycles.
"""

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, insert, select

from agentmem.errors import ConflictError, InvalidInputError, ReplacementNotFoundError
from agentmem.machine.logs import log
from agentmem.store.chain.replacement_chain import note_replacements, sealed_replacement
from agentmem.store.database.database import Database
from agentmem.store.database.schema import AnyRow, MessageRow, ReplacementRow
from agentmem.store.database.tenancy import check_position, not_found
from agentmem.store.prompt_log.summaries import forget_summaries
from agentmem.store.transcript.branches import find_branch, holder_of, lock_branches
from agentmem.store.transcript.replacement_rows import (
    DELETE,
    OF_BRANCHES,
    drop,
    seen_replacements,
    to_replacement,
)
from agentmem.types import BranchId, Origin, Replacement, ReplacementAuthor, Scope

_log = logging.getLogger(__name__)

_ORIGIN: Final = select(MessageRow.origin).where(
    MessageRow.branch_id == bindparam("holder"), MessageRow.position == bindparam("place")
)
_OWN: Final = OF_BRANCHES.where(ReplacementRow.old == bindparam("place"))


class Replacements:
    """The replacements of one database."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def add(
        self,
        scope: Scope,
        branch_id: BranchId,
        old: int,
        new: int,
        *,
        author: ReplacementAuthor = ReplacementAuthor.CALLER,
    ) -> Replacement:
        """
        Store that the message at *new* replaces the one at *old*, and return that.

        The same one again is a no-op. The caller's replaces another one of the message; a rule's
        does not: then the one that is stored is returned.

        Raises:
            InvalidInputError: *old* or *new* is not an integer, or *new* is not after *old*.
            SessionNotFoundError: no such branch of this scope, or no such message on it.
            ConflictError: one of the messages was deleted.
        """
        check_position("old", old)
        check_position("new", new)
        if new <= old:
            raise InvalidInputError(
                f"message {new} is not after message {old}: only a later message replaces another"
            )

        def work(connection: Connection) -> tuple[Replacement, bool]:
            branch = find_branch(connection, scope, branch_id)
            lock_branches(connection, branch.session_id)
            for position in (old, new):
                if not 1 <= position <= branch.head:
                    raise not_found(f"message at position {position} of branch", branch_id, scope)
                _require_text(connection, branch, position)
            found = seen_replacements(connection, branch).get(old)
            if found is not None and (found.new == new or author is ReplacementAuthor.RULE):
                return to_replacement(found), False
            forget_summaries(connection, branch.session_id, old)
            return self._write(connection, branch_id, old, new, author), True

        written, is_new = self._database.write(work)
        if is_new:
            _log_replaced(written)
        return written

    def remove(self, scope: Scope, branch_id: BranchId, old: int) -> Replacement:
        """
        Remove the replacement of the message at *old*, and return it.

        It is removed from the branch that it is of, and so for every branch that inherits it.

        Raises:
            InvalidInputError: *old* is not an integer.
            ReplacementNotFoundError: there is none.
            SessionNotFoundError: no such branch of this scope.
        """
        check_position("old", old)

        def work(connection: Connection) -> Replacement:
            branch = find_branch(connection, scope, branch_id)
            found = seen_replacements(connection, branch).get(old)
            row = None
            if found is not None:
                lock_branches(connection, branch.session_id)
                keys = {"branches": [found.branch_id], "place": old}
                row = connection.execute(_OWN, keys).one_or_none()
            if row is None:
                raise ReplacementNotFoundError(f"no message replaces message {old} on this branch")
            drop(connection, [row])
            forget_summaries(connection, branch.session_id, old)
            return to_replacement(row)

        return self._database.write(work)

    def visible(
        self, scope: Scope, branch_id: BranchId, *, last: int | None = None
    ) -> tuple[Replacement, ...]:
        """
        Return the replacements that a branch sees, by the position of the replaced message.

        With *last*, as of that newest message: only those by a message up to it.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> tuple[Replacement, ...]:
            branch = find_branch(connection, scope, branch_id)
            rows = seen_replacements(connection, branch, last)
            return tuple(to_replacement(rows[old]) for old in sorted(rows))

        return self._database.read(work)

    def _write(
        self,
        connection: Connection,
        branch_id: BranchId,
        old: int,
        new: int,
        author: ReplacementAuthor,
    ) -> Replacement:
        keys = {"branches": [branch_id], "place": old}
        before = connection.execute(_OWN, keys).one_or_none()
        if before is not None:
            connection.execute(DELETE, {"holder": branch_id, "place": old})
        columns = {
            "branch_id": branch_id,
            "old": old,
            "new": new,
            "author": author.value,
            "created_at": self._clock(),
        }
        connection.execute(insert(ReplacementRow), columns)
        row = connection.execute(_OWN, keys).one()
        removed = set() if before is None else {sealed_replacement(before)}
        note_replacements(connection, branch_id, added={sealed_replacement(row)}, removed=removed)
        return to_replacement(row)


def _log_replaced(replacement: Replacement) -> None:
    log(
        _log,
        logging.INFO,
        "message_replaced",
        "message {new} of branch {branch_id} replaces message {old}, by {author}",
        branch_id=replacement.branch_id,
        old=replacement.old,
        new=replacement.new,
        author=replacement.author.value,
    )


def _require_text(connection: Connection, branch: AnyRow, position: int) -> None:
    """
    Check that the message at *position* was not deleted.

    Raises:
        ConflictError: it was.
    """
    keys = {"holder": holder_of(connection, branch, position), "place": position}
    if connection.execute(_ORIGIN, keys).scalar_one_or_none() == Origin.DELETED:
        raise ConflictError(
            f"message {position} was deleted: a deleted message neither replaces another nor is "
            "replaced"
        )
