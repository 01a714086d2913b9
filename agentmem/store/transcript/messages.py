"""Messages: append-only per branch, read by position."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, insert, select, update

from agentmem.errors import ConflictError, InvalidInputError
from agentmem.store.database.damage import check_row, damaged
from agentmem.store.database.database import Database
from agentmem.store.database.schema import AnyRow, AppendRow, BranchRow, MessageRow
from agentmem.store.database.tenancy import check_moment, check_position
from agentmem.store.transcript.branches import change_state, find_branch, is_line, latest, lineage
from agentmem.store.transcript.fast_append import Times, append_plain, insert_entries
from agentmem.store.transcript.message_codec import Decoder, decode, encode, to_json
from agentmem.store.transcript.placeholders import read_all
from agentmem.store.transcript.tool_calls import TranscriptRepair
from agentmem.types import (
    BranchId,
    BranchState,
    Message,
    Origin,
    Role,
    Scope,
    StoredMessage,
    check_name,
)

_MAX_POSITION: Final = 2**63 - 1
_MOVE_HEAD: Final = (
    update(BranchRow)
    .where(BranchRow.id == bindparam("branch"))
    .values(
        head=bindparam("last"),
        open_calls=bindparam("number"),
        updated_at=latest(),
        chain=bindparam("new_chain"),
    )
)
_RANGE: Final = (
    select(MessageRow.__table__)
    .where(
        MessageRow.branch_id == bindparam("branch"),
        MessageRow.position >= bindparam("from"),
        MessageRow.position <= bindparam("to"),
    )
    .order_by(MessageRow.position)
)
# A literal value, so that the partial index is used.
_PROMOTED: Final = _RANGE.where(MessageRow.origin == Origin.PROMOTED.value)
_STORED_AT: Final = func.coalesce(MessageRow.stored_at, MessageRow.created_at)
_FIRST_IN: Final = select(func.min(MessageRow.position)).where(
    MessageRow.branch_id == bindparam("branch"),
    MessageRow.position >= bindparam("from"),
    MessageRow.position <= bindparam("to"),
)
_FIRST_SINCE: Final = _FIRST_IN.where(
    bindparam("moment", type_=MessageRow.created_at.type) <= _STORED_AT
)
_FIRST_OTHER: Final = _FIRST_IN.where(
    bindparam("moment", type_=MessageRow.created_at.type) != _STORED_AT
)
_APPENDED: Final = select(AppendRow.__table__).where(
    AppendRow.branch_id == bindparam("branch"), AppendRow.client_key == bindparam("key")
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """The result of an append, or of the first one with its client key."""

    stored: tuple[StoredMessage, ...]
    is_repeated: bool = False


class Messages:
    """The messages of a branch, by position."""

    def __init__(
        self,
        database: Database,
        clock: Callable[[], datetime],
        decoder: Decoder | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self.decoder = decoder or Decoder()

    def append(  # noqa: PLR0913 - a message, and how it comes in
        self,
        scope: Scope,
        branch_id: BranchId,
        messages: Sequence[Message],
        *,
        origin: Origin = Origin.SAID,
        client_key: str | None = None,
        created_at: datetime | None = None,
    ) -> tuple[StoredMessage, ...]:
        """
        Append *messages* to a branch, atomically, and return the stored messages.

        The transcript stays valid, so more messages may be stored: a synthetic result for each
        open call when the conversation continues, a synthetic call before a result without one. A
        result after the synthetic one is stored as late. With a *client_key* a retry returns the
        first result and stores nothing. *created_at* is the time of the messages, if not now;
        positions are in the order of appending.

        Raises:
            InvalidInputError: there are no messages, one has the system role, or *created_at* has
                no time zone.
            TranscriptError: a second result for a call, or one for an unknown call while others
                are open.
            SessionNotFoundError: no such branch of this scope.
            ConflictError: the branch is not open, or the key was used for other messages.
        """
        return self.append_once(
            scope,
            branch_id,
            messages,
            origin=origin,
            client_key=client_key,
            created_at=created_at,
        ).stored

    def append_once(  # noqa: PLR0913 - as `append`
        self,
        scope: Scope,
        branch_id: BranchId,
        messages: Sequence[Message],
        *,
        origin: Origin = Origin.SAID,
        client_key: str | None = None,
        created_at: datetime | None = None,
    ) -> Appended:
        """As `append`; also return whether it was a retry."""
        if not messages:
            raise InvalidInputError("no message to append")
        _refuse_system(messages)
        if client_key is not None:
            check_name("client key", client_key)
        content = _content_hash(messages, origin) if client_key is not None else b""
        said_at = None if created_at is None else check_moment(created_at).astimezone(UTC)

        def work(connection: Connection) -> Appended:
            times = Times(now=self._clock(), said_at=said_at)
            if client_key is None:
                plain = append_plain(connection, scope, branch_id, messages, origin, times)
                if plain is not None:
                    return Appended(stored=plain)
            branch = find_branch(connection, scope, branch_id, lock=True)
            if client_key is not None:
                first_time = _find_appended(connection, branch, client_key, content)
                if first_time is not None:
                    return Appended(stored=first_time, is_repeated=True)
            stored = append_legal(connection, branch, messages, origin, times)
            if client_key is not None:
                _keep_key(connection, client_key, content, stored)
            return Appended(stored=stored)

        return self._database.write(work)

    def close_calls(self, scope: Scope, branch_id: BranchId) -> tuple[StoredMessage, ...]:
        """
        Store a synthetic result for each open call of a branch, and return them.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            ConflictError: a call is open and the branch is not.
        """

        def is_open(connection: Connection) -> bool:
            return bool(find_branch(connection, scope, branch_id).open_calls)

        def work(connection: Connection) -> tuple[StoredMessage, ...]:
            branch = find_branch(connection, scope, branch_id, lock=True)
            times = Times(now=self._clock())
            return append_legal(connection, branch, (), Origin.SYNTHETIC, times, closes=True)

        return self._database.write(work) if self._database.read(is_open) else ()

    def merge(
        self, scope: Scope, branch_id: BranchId, messages: Sequence[Message]
    ) -> tuple[StoredMessage, ...]:
        """
        End a branch and append *messages* to its parent as promoted, atomically.

        The parent's transcript stays valid as in `append`. Without messages the parent is
        unchanged, in any state.

        Raises:
            InvalidInputError: a message has the system role, or the branch has no parent.
            TranscriptError: as in `append`.
            SessionNotFoundError: no such branch of this scope.
            ConflictError: the branch is not open, or messages are given and its parent is not.
        """
        _refuse_system(messages)

        def work(connection: Connection) -> tuple[StoredMessage, ...]:
            parent_id = find_branch(connection, scope, branch_id).parent_id
            if parent_id is None:
                raise InvalidInputError(f"branch {branch_id} is a main branch: it has no parent")
            # Lock order: the parent first, with the smaller id, as in merges of nested branches
            # and in deletions.
            parent = find_branch(connection, scope, parent_id, lock=True)
            branch = find_branch(connection, scope, branch_id, lock=True)
            change_state(
                connection,
                branch,
                expected=BranchState.OPEN,
                state=BranchState.ENDED,
                moment=self._clock(),
            )
            if not messages:
                return ()
            times = Times(now=self._clock())
            return append_legal(connection, parent, messages, Origin.PROMOTED, times)

        return self._database.write(work)

    def read(
        self, scope: Scope, branch_id: BranchId, first: int = 1, last: int | None = None
    ) -> tuple[StoredMessage, ...]:
        """
        Return the messages *first* to *last* (both included) of a branch's view, in order.

        Up to the fork they are its ancestors', each with the branch that stores it. Positions that
        do not exist are omitted. A corrupt message is replaced by a placeholder of the origin
        ``Origin.DAMAGED``.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: a position is not an integer.
        """
        return self._read(_RANGE, scope, branch_id, first, last)

    def promoted(
        self, scope: Scope, branch_id: BranchId, first: int = 1, last: int | None = None
    ) -> tuple[StoredMessage, ...]:
        """
        Return the promoted messages of `read`.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: a position is not an integer.
        """
        return self._read(_PROMOTED, scope, branch_id, first, last)

    def head_at(self, scope: Scope, branch_id: BranchId, moment: datetime) -> int:
        """
        Return the newest position of the branch's view at *moment*; 0 for none.

        By the time of storage, not `created_at`. A message is never earlier than its predecessor,
        even if the clock was set back.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: *moment* has no time zone, or is out of range in UTC.
        """
        check_moment(moment)

        def work(connection: Connection) -> int:
            branch = find_branch(connection, scope, branch_id)
            # Several messages may have the same time.
            statement = _FIRST_SINCE
            for holder, start, stop in reversed(list(lineage(connection, branch))):
                keys = {"branch": holder.id, "from": start, "to": stop, "moment": moment}
                found = connection.execute(statement, keys).scalar_one()
                if found is not None and statement is _FIRST_SINCE:
                    statement = _FIRST_OTHER
                    found = connection.execute(statement, {**keys, "from": found}).scalar_one()
                if found is not None:
                    return int(found) - 1
            return int(branch.head)

        return self._database.read(work)

    def _read(
        self, statement: Any, scope: Scope, branch_id: BranchId, first: int, last: int | None
    ) -> tuple[StoredMessage, ...]:
        check_position("first", first)
        if last is not None:
            check_position("last", last)
        lowest = max(1, min(first, _MAX_POSITION))
        highest = None if last is None else max(0, min(last, _MAX_POSITION))

        def work(connection: Connection) -> list[StoredMessage]:
            branch = find_branch(connection, scope, branch_id)
            pieces: list[StoredMessage] = []
            for holder, start, stop in lineage(connection, branch, highest):
                bounds = {"branch": holder.id, "from": max(start, lowest), "to": stop}
                if bounds["from"] <= stop:
                    rows = connection.execute(statement, bounds).all()
                    dense = (holder.id, bounds["from"], stop) if statement is _RANGE else None
                    pieces[:0] = read_all(connection, rows, self.decoder, dense)
                if start <= lowest:
                    break
            return pieces

        return tuple(self._database.read(work))


def _refuse_system(messages: Sequence[Message]) -> None:
    if any(message.role is Role.SYSTEM for message in messages):
        raise InvalidInputError("the system message is composed of pins: set a pin instead")


def _content_hash(messages: Sequence[Message], origin: Origin) -> bytes:
    hasher = hashlib.sha256(origin.encode())
    for columns in map(encode, messages):
        ids = columns["generated_ids"]
        plain = {**columns, "generated_ids": ids.hex() if ids is not None else None}
        hasher.update(to_json(plain).encode())
    return hasher.digest()


def _keep_key(
    connection: Connection, client_key: str, content: bytes, stored: tuple[StoredMessage, ...]
) -> None:
    key = {
        "branch_id": stored[0].branch_id,
        "client_key": client_key,
        "first": stored[0].position,
        "last": stored[-1].position,
        "content": content,
    }
    connection.execute(insert(AppendRow), key)


def _find_appended(
    connection: Connection, branch: AnyRow, client_key: str, content: bytes
) -> tuple[StoredMessage, ...] | None:
    """
    Return the messages of the first append with this key; None without one.

    A line inherits the keys of inherited messages.
    """
    for holder, _, stop in lineage(connection, branch):
        keys = {"branch": holder.id, "key": client_key}
        found = connection.execute(_APPENDED, keys).one_or_none()
        if found is not None:
            _check_appended(found, holder)
        if found is not None and found.last <= stop:
            return _as_appended(connection, holder, found, client_key, content)
        if not is_line(holder):
            break
    return None


def _check_appended(row: AnyRow, holder: AnyRow) -> None:
    check_row("append", row)
    if not holder.forked_at < row.first <= row.last <= holder.head:
        raise damaged("append", row, None, f"{row.first} to {row.last} is not a range")


def _as_appended(
    connection: Connection, holder: AnyRow, found: AnyRow, client_key: str, content: bytes
) -> tuple[StoredMessage, ...]:
    if found.content != content:
        raise ConflictError(
            f"client key {client_key!r} was used in this branch for other messages (positions "
            f"{found.first} to {found.last}): use a new key for new content"
        )
    bounds = {"branch": holder.id, "from": found.first, "to": found.last}
    dense = (holder.id, found.first, found.last)
    return tuple(read_all(connection, connection.execute(_RANGE, bounds).all(), decode, dense))


def append_legal(  # noqa: PLR0913 - the fields of a message
    connection: Connection,
    branch: AnyRow,
    messages: Sequence[Message],
    origin: Origin,
    times: Times,
    *,
    closes: bool = False,
) -> tuple[StoredMessage, ...]:
    """
    Append *messages* to a locked branch, with synthetic messages that keep the transcript valid.

    Raises:
        ConflictError: the branch is not open.
        TranscriptError: as in `Messages.append`.
    """
    if branch.state != BranchState.OPEN:
        raise ConflictError(
            f"branch {branch.id} ({branch.name!r}) is {branch.state}: nothing can be appended to it"
        )
    transcript = TranscriptRepair(connection, branch)
    for message in messages:
        transcript.add(message, origin)
    if closes:
        transcript.close()
    if not transcript.entries:
        return ()
    entries = transcript.entries
    stored, chain = insert_entries(connection, branch.id, entries, times, branch.chain)
    transcript.write_calls()
    changes = {"last": transcript.head, "number": transcript.num_open, "moment": times.now}
    connection.execute(_MOVE_HEAD, {"branch": branch.id, **changes, "new_chain": chain})
    return stored
