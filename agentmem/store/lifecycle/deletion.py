"""
Permanent deletion: from all tables and, on SQLite, from all files of the database.

On PostgreSQL the bytes of deleted rows leave the server's files with VACUUM and the recycling of
its write-ahead log, which the server controls.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, delete, select, update

from agentmem.errors import InvalidInputError
from agentmem.machine.logs import log
from agentmem.store.chain.branch_chain import add_event, message_digest
from agentmem.store.chain.pin_chain import digests_of, made_from, note_pins
from agentmem.store.database.database import Database
from agentmem.store.database.schema import (
    AnyRow,
    BranchRow,
    EmbeddingRow,
    MessageRow,
    OwnerRow,
    PinRow,
    PinVersionRow,
    SessionRow,
)
from agentmem.store.database.tenancy import (
    check_id,
    check_position,
    is_owner,
    not_found,
    owner_digest,
)
from agentmem.store.lifecycle.losses import content_of, insert_lost, link_of, loss, restore_place
from agentmem.store.prompt_log.summaries import forget_summaries
from agentmem.store.transcript.branches import (
    BRANCHES_OF_SESSION,
    LOCK_IN_ORDER,
    find_branch,
    find_branches,
    hand_up_age,
    holder_of,
    lock_branches,
)
from agentmem.store.transcript.message_codec import decode, encode
from agentmem.store.transcript.pin_rows import lock_pins
from agentmem.store.transcript.placeholders import read_all
from agentmem.store.transcript.replacement_rows import forget_replacements
from agentmem.types import (
    BranchId,
    Message,
    MessageId,
    Origin,
    PinScope,
    Role,
    Scope,
    SessionId,
    TextPart,
    ToolCall,
    check_name,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)

DELETED: Final = "[deleted]"
DELETED_EVENT: Final = "deleted"

_SESSION_IDS: Final = (
    select(SessionRow.id).join(OwnerRow, OwnerRow.id == SessionRow.owner_id).where(is_owner())
)
_MESSAGE_IDS: Final = (
    select(MessageRow.id)
    .where(MessageRow.branch_id.in_(bindparam("branches", expanding=True)))
    .order_by(MessageRow.id)
)
_FORGET_PINNED: Final = (
    update(PinVersionRow)
    .where(
        PinVersionRow.made_from == bindparam("place"),
        PinVersionRow.pin_id.in_(select(PinRow.id).where(PinRow.branch_id == bindparam("holder"))),
    )
    .values(text=None, nonce=None)
)
_MADE_BY_ITSELF: Final = (
    select(PinVersionRow.pin_id)
    .where(PinVersionRow.pin_id == bindparam("pin"), PinVersionRow.made_from.is_not(None))
    .limit(1)
)
# Lock order: the older branch first.


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """
    Deleted ids, for owners of derived data: indexes, summaries, cached KV.

    *messages* includes messages of which only the content was deleted.
    """

    sessions: tuple[SessionId, ...] = ()
    branches: tuple[BranchId, ...] = ()
    messages: tuple[MessageId, ...] = ()


class Deletion:
    """Permanent deletion."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def message(self, scope: Scope, branch_id: BranchId, position: int) -> Deleted:
        """
        Delete the content of a message; position, role and calls stay: the transcript is valid.

        It is deleted for every branch that inherits it, with its vectors, its automatic pin, all
        summaries of the session that cover its position, and its replacements. Promoted results and
        quotations in answers are separate messages.

        Raises:
            SessionNotFoundError: the branch does not exist in this scope, or the message in it.
            InvalidInputError: *position* is not an integer.
        """
        check_position("position", position)

        def work(connection: Connection) -> Deleted:
            branch = find_branch(connection, scope, branch_id)
            # A concurrent summary of the message is stored by now, or will detect the deletion.
            lock_branches(connection, branch.session_id)
            if not 1 <= position <= branch.head:
                raise not_found(f"message at position {position} of branch", branch_id, scope)
            holder = holder_of(connection, branch, position)
            row_id = _empty(connection, holder, position)
            forget_summaries(connection, branch.session_id, position)
            _forget_pinned(connection, holder, position)
            forget_replacements(connection, scope, branch.session_id, holder, position)
            # A concurrent vector of it is stored by now, or will find the message without content.
            connection.execute(delete(EmbeddingRow).where(EmbeddingRow.message_id == row_id))
            return Deleted(messages=(MessageId(row_id),))

        return self._logged(scope, self._finish(work))

    def pin(
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope | None = PinScope.SESSION,
    ) -> None:
        """
        Delete a pin with all its versions.

        Without a *pin_scope*, in the scopes of the conversation (see `lock_pins`). An automatic pin
        leaves a version without a text, so that a retry of its message's append does not restore
        it.

        Raises:
            InvalidInputError: *key* cannot be stored.
            PinNotFoundError: it was never set in that scope.
            SessionNotFoundError: the branch does not exist in this scope.
        """
        check_name("pin key", key)

        def work(connection: Connection) -> None:
            for target, found in lock_pins(connection, scope, branch_id, key, pin_scope):
                before = digests_of(connection, [found.id])
                _delete_pin(connection, found)
                after = digests_of(connection, [found.id])
                note_pins(connection, target, added=after, removed=before)

        self._finish(work)

    def branch(self, scope: Scope, branch_id: BranchId) -> Deleted:
        """
        Delete a branch and all its forks.

        Raises:
            SessionNotFoundError: the branch does not exist in this scope.
            InvalidInputError: it is the main branch, which is deleted with its session only.
        """

        def work(connection: Connection) -> Deleted:
            found = find_branch(connection, scope, branch_id)
            if found.parent_id is None:
                raise InvalidInputError(
                    f"branch {branch_id} is the main branch of its session: delete the session"
                )
            doomed = {found.id}
            # Parents are older than children, so one pass in order finds all descendants.
            for row in find_branches(connection, scope, found.session_id):
                if row.parent_id in doomed:
                    doomed.add(row.id)
            # Lock order: a parent is older than its children.
            connection.execute(LOCK_IN_ORDER, {"branches": [found.parent_id, *sorted(doomed)]})
            hand_up_age(connection, found.parent_id, sorted(doomed))
            return _delete_branches(connection, sorted(doomed))

        return self._logged(scope, self._finish(work))

    def session(self, scope: Scope, session_id: SessionId) -> Deleted:
        """
        Delete a session with all its data.

        Raises:
            SessionNotFoundError: the session does not exist in this scope.
        """

        def work(connection: Connection) -> Deleted:
            # A session without branches can be deleted too.
            owned = _SESSION_IDS.where(SessionRow.id == check_id("session", session_id))
            if connection.scalar(owned, {"owner": owner_digest(scope)}) is None:
                raise not_found("session", session_id, scope)
            return delete_sessions(connection, [session_id])

        gone = self._finish(work)
        log(
            _log,
            logging.INFO,
            "session_deleted",
            "session {session_id} with {num_messages} messages was deleted",
            namespace=scope.namespace,
            session_id=session_id,
            num_branches=len(gone.branches),
            num_messages=len(gone.messages),
        )
        return gone

    def user(self, scope: Scope) -> Deleted:
        """Delete all sessions and pins of a user of a namespace, if any."""

        def work(connection: Connection) -> Deleted:
            owner = {"owner": owner_digest(scope)}
            found = connection.execute(_SESSION_IDS, owner).scalars().all()
            gone = delete_sessions(connection, found)
            connection.execute(delete(OwnerRow).where(is_owner()), owner)
            return gone

        gone = self._finish(work)
        log(
            _log,
            logging.INFO,
            "user_deleted",
            "a user with {num_sessions} sessions and {num_messages} messages was deleted",
            namespace=scope.namespace,
            num_sessions=len(gone.sessions),
            num_messages=len(gone.messages),
        )
        return gone

    def _logged(self, scope: Scope, gone: Deleted) -> Deleted:
        """Log a deletion within a session."""
        log(
            _log,
            logging.INFO,
            "messages_deleted",
            "{num_messages} messages and {num_branches} branches of a session were deleted",
            namespace=scope.namespace,
            num_branches=len(gone.branches),
            num_messages=len(gone.messages),
        )
        return gone

    def _finish(self, work: Callable[[Connection], T]) -> T:
        result = self._database.write(work)
        self._database.forget_deleted()
        return result


def _empty(connection: Connection, branch_id: int, position: int) -> int:
    """
    Delete the content of a message's row, readable or not, and return the row's id.

    For a missing message there may be a row with an invalid position: its text is deleted too.
    """
    place = select(MessageRow.__table__).where(
        MessageRow.branch_id == branch_id, MessageRow.position == position
    )
    row = connection.execute(place).first()
    if row is None:
        restore_place(connection, branch_id, position)
        row = connection.execute(place).first()
    dense = (branch_id, position, position)
    (stored,) = read_all(connection, [] if row is None else [row], decode, dense)
    emptied = {**encode(_emptied(stored.message)), "origin": Origin.DELETED.value}
    if stored.origin is not Origin.DAMAGED and row is not None:
        _write_emptied(connection, row, emptied)
        return stored.id
    emptied |= {"created_at": stored.created_at, "stored_at": None}
    if row is not None:
        _write_emptied(connection, row, emptied, is_lost=True)
        return stored.id
    added = insert_lost(connection, branch_id, position, emptied)
    _note(connection, connection.execute(place).one(), emptied, is_lost=True)
    return added


def _write_emptied(
    connection: Connection, row: AnyRow, emptied: dict[str, Any], *, is_lost: bool = False
) -> None:
    """Write a tombstone; the content hash stays, the nonce is deleted."""
    columns = row._asdict()
    sealed = content_of(row) or message_digest(None, {**columns, **emptied})
    gone = {**emptied, "nonce": None, "sealed": sealed}
    connection.execute(update(MessageRow).where(MessageRow.id == row.id).values(**gone))
    _note(connection, row, emptied, is_lost=is_lost)


def _note(connection: Connection, row: AnyRow, emptied: dict[str, Any], *, is_lost: bool) -> None:
    """Append a deletion event to the branch's chain."""
    left = message_digest(None, {**row._asdict(), **emptied}).hex()
    note: dict[str, object] = {"position": row.position, "left": left}
    if is_lost:
        link, said = loss(connection, row.branch_id, row.position, link_of(row))
        connection.execute(update(MessageRow).where(MessageRow.id == row.id).values(link=link))
        note |= said
    add_event(connection, row.branch_id, DELETED_EVENT, note)


def _forget_pinned(connection: Connection, holder: int, position: int) -> None:
    pins = made_from(connection, holder, position)
    before = digests_of(connection, pins)
    connection.execute(_FORGET_PINNED, {"holder": holder, "place": position})
    target = {"scope": PinScope.BRANCH.value, "branch_id": holder}
    note_pins(connection, target, added=digests_of(connection, pins), removed=before)


def _delete_pin(connection: Connection, found: AnyRow) -> None:
    if connection.execute(_MADE_BY_ITSELF, {"pin": found.id}).first() is None:
        connection.execute(delete(PinRow).where(PinRow.id == found.id))
        return
    versions = PinVersionRow.pin_id == found.id
    older = PinVersionRow.version != found.version
    connection.execute(delete(PinVersionRow).where(versions, older))
    connection.execute(update(PinVersionRow).where(versions).values(text=None, nonce=None))


def _emptied(message: Message) -> Message:
    """Return the tombstone of a message: its role, and the calls that it makes or answers."""
    return Message(
        role=message.role,
        parts=(TextPart(text=DELETED),),
        tool_calls=tuple(ToolCall(id=call.id, name=call.name) for call in message.tool_calls),
        tool_call_id=message.tool_call_id,
        name=message.name if message.role is Role.TOOL else None,
    )


def delete_sessions(connection: Connection, session_ids: Sequence[int]) -> Deleted:
    """Delete sessions with all their data."""
    branches: list[BranchId] = []
    messages: list[MessageId] = []
    for session_id in session_ids:
        found = connection.execute(BRANCHES_OF_SESSION, {"session": session_id}).scalars().all()
        gone = _delete_branches(connection, found)
        branches += gone.branches
        messages += gone.messages
        connection.execute(delete(SessionRow).where(SessionRow.id == session_id))
    return Deleted(
        sessions=tuple(SessionId(session_id) for session_id in session_ids),
        branches=tuple(branches),
        messages=tuple(messages),
    )


def _delete_branches(connection: Connection, branch_ids: Sequence[int]) -> Deleted:
    """Delete branches, youngest first: SQLite limits the depth of cascades."""
    ordered = sorted(branch_ids)
    connection.execute(LOCK_IN_ORDER, {"branches": ordered})
    messages = connection.execute(_MESSAGE_IDS, {"branches": ordered}).scalars().all()
    for branch_id in reversed(ordered):
        connection.execute(delete(BranchRow).where(BranchRow.id == branch_id))
    return Deleted(
        branches=tuple(BranchId(branch_id) for branch_id in ordered),
        messages=tuple(MessageId(message_id) for message_id in messages),
    )
