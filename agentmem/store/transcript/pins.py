"""
Pins: keyed, versioned texts that every prompt shows.

The order is that of first setting, by an integer. A pin of an inner scope replaces the outer one of
the same key in its position, so that a subtask's "role" still comes first. A manual pin, in any
scope, replaces an automatic one.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, insert, or_, select, update

from agentmem.errors import InvalidInputError, PinNotFoundError
from agentmem.store.chain.branch_chain import pin_digest
from agentmem.store.chain.pin_chain import note_pins
from agentmem.store.database.database import Database
from agentmem.store.database.hashing import new_nonce
from agentmem.store.database.schema import AnyRow, MessageRow, PinRow, PinVersionRow
from agentmem.store.transcript.branches import find_branch, lineage
from agentmem.store.transcript.pin_rows import (
    AS_OF,
    NEWEST,
    PIN_COLUMNS,
    check_pin,
    expect_version,
    find_pin,
    find_pins,
    is_seen,
    lock_pins,
    lock_target,
    to_pin,
)
from agentmem.types import (
    BranchId,
    Origin,
    Pin,
    PinScope,
    Scope,
    StoredMessage,
    check_name,
    check_text,
)

AUTOMATIC: Final = "auto_pin"
"""The author of automatic pins."""


def _is_visible(is_of_branch: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(
        PinVersionRow.text.is_not(None),
        or_(
            (PinRow.scope == PinScope.USER) & (PinRow.target_id == bindparam("user_id")),
            (PinRow.scope == PinScope.SESSION) & (PinRow.target_id == bindparam("session")),
            (PinRow.scope == PinScope.BRANCH) & is_of_branch,
        ),
    )


_IS_OF_LINE: Final = PinRow.target_id.in_(bindparam("branches", expanding=True))
_VISIBLE: Final = NEWEST.where(_is_visible(_IS_OF_LINE))
_VISIBLE_AT: Final = AS_OF.where(_is_visible(_IS_OF_LINE))
# A list of parameters is expanded on each call; most branches are main.
_VISIBLE_ON_MAIN: Final = NEWEST.where(_is_visible(PinRow.target_id == bindparam("branch")))
_HISTORY: Final = (
    select(*PIN_COLUMNS)
    .join(PinVersionRow, PinVersionRow.pin_id == PinRow.id)
    .where(PinRow.id == bindparam("pin"))
    .order_by(PinVersionRow.version)
)
_ORIGIN: Final = select(MessageRow.origin).where(
    MessageRow.branch_id == bindparam("branch"), MessageRow.position == bindparam("place")
)
_NEWEST_MESSAGE: Final = select(func.max(MessageRow.id))
_SET_VERSION: Final = (
    update(PinRow).where(PinRow.id == bindparam("pin")).values(version=bindparam("new"))
)


class Pins:
    """Sets, removes and lists pins. *pin_scope* is their visibility: user, session or branch."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def set(  # noqa: PLR0913 - a pin has as many fields
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        text: str,
        *,
        pin_scope: PinScope = PinScope.SESSION,
        author: str = "user",
        expected_version: int | None = None,
    ) -> Pin:
        """
        Set the text of a pin, as a new version unless the text is unchanged.

        Args:
            scope: namespace and user.
            branch_id: the branch of the pin, or any of its session or user.
            key: the key of the pin in its scope.
            text: shown in every prompt, byte for byte.
            pin_scope: its visibility.
            author: the author of this version.
            expected_version: the newest version known to the caller; 0 for none.

        Raises:
            InvalidInputError: *key* or *text* is empty or cannot be stored.
            SessionNotFoundError: no such branch of this scope.
            ConflictError: the pin is not at the expected version.
        """
        check_name("pin key", key)
        check_name("author", author)
        if not check_text("pin text", text).strip():
            raise InvalidInputError(f"the text of pin {key!r} is empty: remove the pin instead")

        def work(connection: Connection) -> Pin:
            target = lock_target(connection, scope, branch_id, pin_scope)
            found = find_pin(connection, target, key)
            expect_version(found, key, expected_version)
            if found is not None and found.text == text:
                return to_pin(found)
            return self._write(connection, target, key, found, text=text, author=author)

        return self._database.write(work)

    def set_automatic(  # noqa: PLR0913 - as for set
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        text: str,
        *,
        position: int,
        is_repeated: bool = False,
    ) -> None:
        """
        Set an automatic pin with *text* of the branch's own message at *position*.

        A no-op if the branch has a manual pin of that *key*, if the message was deleted meanwhile,
        or, if the append *is_repeated*, if there ever was such a pin.

        Raises:
            InvalidInputError: *key* or *text* is empty or cannot be stored.
            SessionNotFoundError: no such branch of this scope.
        """
        check_name("pin key", key)
        if not check_text("pin text", text).strip():
            raise InvalidInputError(f"the text of pin {key!r} is empty: pin something else")

        def work(connection: Connection) -> None:
            target = lock_target(connection, scope, branch_id, PinScope.BRANCH)
            found = find_pin(connection, target, key)
            if found is not None:
                is_set = found.text is not None and found.made_from is None
                is_same = found.text == text and found.made_from == position
                if is_repeated or is_set or is_same:
                    return
            place = {"branch": branch_id, "place": position}
            if connection.execute(_ORIGIN, place).scalar_one_or_none() in (None, Origin.DELETED):
                return
            said: dict[str, str | int] = {"text": text, "author": AUTOMATIC}
            self._write(connection, target, key, found, **said, made_from=position)

        self._database.write(work)

    def remove(  # noqa: PLR0913 - as for set
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope | None = PinScope.SESSION,
        author: str = "user",
        expected_version: int | None = None,
    ) -> None:
        """
        Remove a pin from prompts; its versions stay. Idempotent.

        Without a *pin_scope*, in the scopes of the conversation (see `lock_pins`).

        Raises:
            PinNotFoundError: it was never set in that scope.
            SessionNotFoundError: no such branch of this scope.
            ConflictError: the pin is not at the expected version.
        """
        check_name("pin key", key)
        check_name("author", author)

        def work(connection: Connection) -> None:
            try:
                every = lock_pins(connection, scope, branch_id, key, pin_scope)
            except PinNotFoundError:
                expect_version(None, key, expected_version)
                raise
            for target, found in every:
                expect_version(found, key, expected_version)
                if found.text is not None:
                    self._write(connection, target, key, found, text=None, author=author)

        self._database.write(work)

    def undo(
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope | None = PinScope.SESSION,
        author: str = "user",
    ) -> Pin:
        """
        Restore the previous version, possibly a removal, as a new version.

        A second undo reverts the first.

        Raises:
            PinNotFoundError: the pin was never set in that scope.
            SessionNotFoundError: no such branch of this scope.
        """
        check_name("pin key", key)
        check_name("author", author)

        def work(connection: Connection) -> Pin:
            every = lock_pins(connection, scope, branch_id, key, pin_scope)
            target, found = max(every, key=lambda pair: _changed(pair[1]))
            rows = connection.execute(_HISTORY, {"pin": found.id})
            versions = [check_pin(row) for row in rows]
            before = versions[-2] if len(versions) > 1 else None
            said = {
                "text": before.text if before is not None else None,
                "author": author,
                # It still is a text of that message, and is deleted with it.
                "made_from": before.made_from if before is not None else None,
            }
            return self._write(connection, target, key, found, **said)

        return self._database.write(work)

    def visible(
        self, scope: Scope, branch_id: BranchId, *, before: StoredMessage | None = None
    ) -> tuple[Pin, ...]:
        """
        Return the pins of a prompt of this branch, in order.

        The user's come first, then the session's, then the branch's, ancestors first; in each by
        first setting. Of one key only the innermost is returned, at the outermost one's position;
        an automatic one only without a manual one.
        With *before*, as of the storage of that message.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> tuple[dict[int, int], list[AnyRow]]:
            branch = find_branch(connection, scope, branch_id)
            seen = {holder.id: stop for holder, _, stop in lineage(connection, branch)}
            line = list(seen)
            targets = {"user_id": branch.owner_id, "session": branch.session_id, "branches": line}
            if before is not None:
                stored_at = before.stored_at or before.created_at
                place = {"message": before.id, "moment": stored_at}
                return seen, list(connection.execute(_VISIBLE_AT, {**targets, **place}).all())
            if len(line) == 1:
                targets = {**targets, "branch": line[0]}
                return seen, list(connection.execute(_VISIBLE_ON_MAIN, targets).all())
            return seen, list(connection.execute(_VISIBLE, targets).all())

        return self._database.read(lambda connection: _chosen(*work(connection)))

    def history(
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope | None = PinScope.SESSION,
    ) -> tuple[Pin, ...]:
        """
        Return all versions of a pin, oldest first, removals included.

        Without a *pin_scope*, those of the pin that `undo` would change.

        Raises:
            PinNotFoundError: it was never set in that scope.
            SessionNotFoundError: no such branch of this scope.
        """
        check_name("pin key", key)

        def work(connection: Connection) -> tuple[Pin, ...]:
            every = find_pins(connection, scope, branch_id, key, pin_scope)
            found = max((row for _, row in every), key=_changed)
            return tuple(map(to_pin, connection.execute(_HISTORY, {"pin": found.id})))

        return self._database.read(work)

    def _write(
        self,
        connection: Connection,
        target: dict[str, Any],
        key: str,
        found: AnyRow | None,
        **said: str | int | None,
    ) -> Pin:
        if found is None:
            row = {**target, "key": key, "version": 1}
            pin_id = connection.execute(insert(PinRow).returning(PinRow.id), row).scalar_one()
            version = 1
        else:
            check_pin(found)
            pin_id, version = found.id, found.version + 1
            connection.execute(_SET_VERSION, {"pin": pin_id, "new": version})
        columns: dict[str, Any] = {
            "pin_id": pin_id,
            "version": version,
            **said,
            "created_at": self._clock(),
            "after_message": connection.execute(_NEWEST_MESSAGE).scalar_one_or_none() or 0,
            "nonce": new_nonce(),
        }
        columns.setdefault("made_from", None)
        connection.execute(insert(PinVersionRow), columns)
        sealed = pin_digest(columns["nonce"], {**target, "key": key}, columns)
        note_pins(connection, target, added={sealed.hex()})
        written = find_pin(connection, target, key)
        assert written is not None, "a pin is there once it was written"
        return to_pin(written)


def _chosen(seen: Mapping[int, int], rows: list[AnyRow]) -> tuple[Pin, ...]:
    """Order the visible pins, and choose one per key; *seen* has the line's ends."""
    for row in rows:
        check_pin(row)
    depth = {target: -index for index, target in enumerate(seen)}
    order = list(PinScope)
    rows.sort(
        key=lambda row: (
            order.index(row.scope),
            depth[row.target_id] if row.scope == PinScope.BRANCH else 0,
            row.id,
        )
    )
    chosen: dict[str, AnyRow] = {}
    for row in rows:
        if not is_seen(row, seen):
            continue
        other = chosen.get(row.key)
        if other is None or row.made_from is None or other.made_from is not None:
            # A dict keeps the position of a key whose value is replaced.
            chosen[row.key] = row
    return tuple(map(to_pin, chosen.values()))


def _changed(row: AnyRow) -> tuple[datetime, int]:
    """Order pins by their last change."""
    check_pin(row)
    return row.created_at, row.id
