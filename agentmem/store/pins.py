"""
Pins: keyed, versioned records of persistent context.

Order is that of first setting, by an integer. A pin of an inner scope with the same key takes the
place of the outer one, so that a subtask's own "role" still comes first.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, insert, or_, select, update

from agentmem.errors import InvalidInputError, PinNotFoundError
from agentmem.store.branches import find_branch, lineage
from agentmem.store.engine import Database
from agentmem.store.pin_rows import (
    AS_OF,
    NEWEST,
    PIN_COLUMNS,
    expect_version,
    find_pin,
    lock_target,
    target_of,
    to_pin,
)
from agentmem.store.schema import AnyRow, PinRow, PinVersionRow
from agentmem.store.scoping import check_moment
from agentmem.types import BranchId, Pin, PinScope, Scope, check_name, check_text


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
# A list of parameters is written anew each time; most branches are main.
_VISIBLE_ON_MAIN: Final = NEWEST.where(_is_visible(PinRow.target_id == bindparam("branch")))
_HISTORY: Final = (
    select(*PIN_COLUMNS)
    .join(PinVersionRow, PinVersionRow.pin_id == PinRow.id)
    .where(PinRow.id == bindparam("pin"))
    .order_by(PinVersionRow.version)
)
_SET_VERSION: Final = (
    update(PinRow).where(PinRow.id == bindparam("pin")).values(version=bindparam("new"))
)


class Pins:
    """Sets, removes and lists pins. *pin_scope* says who sees one: user, session or branch."""

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
        Give a pin a text, as a new version unless it is the text already.

        Args:
            scope: who asks.
            branch_id: the branch, or one of the session or user, that the pin is for.
            key: what names the pin in its scope.
            text: what every prompt will hold, byte for byte.
            pin_scope: who sees it.
            author: who wrote this version.
            expected_version: the newest version that the caller knows; 0 means that there is none.

        Raises:
            InvalidInputError: *key* or *text* is empty or cannot be stored.
            SessionNotFoundError: no such branch of this scope.
            ConflictError: the pin is at another version than the expected one.
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

    def remove(  # noqa: PLR0913 - as for set
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope = PinScope.SESSION,
        author: str = "user",
        expected_version: int | None = None,
    ) -> None:
        """
        Take a pin out of the prompts; its versions stay. Removing it again changes nothing.

        Raises:
            PinNotFoundError: it was never set in that scope.
            SessionNotFoundError: no such branch of this scope.
            ConflictError: the pin is at another version than the expected one.
        """
        check_name("pin key", key)
        check_name("author", author)

        def work(connection: Connection) -> None:
            target = lock_target(connection, scope, branch_id, pin_scope)
            found = find_pin(connection, target, key)
            expect_version(found, key, expected_version)
            if found is None:
                raise PinNotFoundError(f"there is no pin {key!r} of the scope {pin_scope.value}")
            if found.text is not None:
                self._write(connection, target, key, found, text=None, author=author)

        self._database.write(work)

    def undo(
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope = PinScope.SESSION,
        author: str = "user",
    ) -> Pin:
        """
        Bring the version before the newest one back, as a new version; a removal may come back too.

        A second undo takes back the first.

        Raises:
            PinNotFoundError: the pin was never set in that scope.
            SessionNotFoundError: no such branch of this scope.
        """
        check_name("author", author)

        def work(connection: Connection) -> Pin:
            target = lock_target(connection, scope, branch_id, pin_scope)
            found = find_pin(connection, target, key)
            if found is None:
                raise PinNotFoundError(f"there is no pin {key!r} of the scope {pin_scope.value}")
            versions = connection.execute(_HISTORY, {"pin": found.id}).all()
            text = versions[-2].text if len(versions) > 1 else None
            return self._write(connection, target, key, found, text=text, author=author)

        return self._database.write(work)

    def visible(
        self, scope: Scope, branch_id: BranchId, *, at: datetime | None = None
    ) -> tuple[Pin, ...]:
        """
        Give the pins that a prompt of this branch begins with, in their order.

        The user's come first, then the session's, then the branch's, ancestors before it; in each
        by first setting. Of one key only the innermost is given, in the outermost one's place.
        With *at*, as they were at that moment.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: *at* has no time zone, or is out of range in UTC.
        """
        if at is not None:
            check_moment(at)

        def work(connection: Connection) -> tuple[list[int], list[AnyRow]]:
            branch = find_branch(connection, scope, branch_id)
            line = [holder.id for holder, _, _ in lineage(connection, branch)]
            targets = {"user_id": branch.owner_id, "session": branch.session_id, "branches": line}
            if at is not None:
                return line, list(connection.execute(_VISIBLE_AT, {**targets, "moment": at}).all())
            if len(line) == 1:
                targets = {**targets, "branch": line[0]}
                return line, list(connection.execute(_VISIBLE_ON_MAIN, targets).all())
            return line, list(connection.execute(_VISIBLE, targets).all())

        line, rows = self._database.read(work)
        depth = {target: -index for index, target in enumerate(line)}
        order = list(PinScope)
        rows.sort(
            key=lambda row: (
                order.index(row.scope),
                depth[row.target_id] if row.scope == PinScope.BRANCH else 0,
                row.id,
            )
        )
        # A dict keeps the place of a key that is given a new value.
        return tuple({row.key: to_pin(row) for row in rows}.values())

    def history(
        self,
        scope: Scope,
        branch_id: BranchId,
        key: str,
        *,
        pin_scope: PinScope = PinScope.SESSION,
    ) -> tuple[Pin, ...]:
        """
        Give all versions of a pin, oldest first, removals included.

        Raises:
            PinNotFoundError: it was never set in that scope.
            SessionNotFoundError: no such branch of this scope.
        """
        check_name("pin key", key)

        def work(connection: Connection) -> list[AnyRow]:
            branch = find_branch(connection, scope, branch_id)
            found = find_pin(connection, target_of(branch, pin_scope), key)
            if found is None:
                raise PinNotFoundError(f"there is no pin {key!r} of the scope {pin_scope.value}")
            return list(connection.execute(_HISTORY, {"pin": found.id}).all())

        return tuple(to_pin(row) for row in self._database.read(work))

    def _write(
        self,
        connection: Connection,
        target: dict[str, Any],
        key: str,
        found: AnyRow | None,
        **said: str | None,
    ) -> Pin:
        if found is None:
            row = {**target, "key": key, "version": 1}
            pin_id = connection.execute(insert(PinRow).returning(PinRow.id), row).scalar_one()
            version = 1
        else:
            pin_id, version = found.id, found.version + 1
            connection.execute(_SET_VERSION, {"pin": pin_id, "new": version})
        columns = {
            "pin_id": pin_id,
            "version": version,
            **said,
            "created_at": self._clock(),
        }
        connection.execute(insert(PinVersionRow), columns)
        written = find_pin(connection, target, key)
        assert written is not None, "a pin is there once it was written"
        return to_pin(written)
