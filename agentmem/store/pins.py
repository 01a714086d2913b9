"""
Pins: keyed, versioned records of persistent context.

Order is that of first setting, by an integer. A pin of an inner scope with the same key takes the
place of the outer one, so that a subtask's own "role" still comes first.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, or_, select, update

from agentmem.errors import ConflictError, InvalidInputError, PinNotFoundError
from agentmem.store.branches import find_branch, lineage
from agentmem.store.engine import Database
from agentmem.store.schema import AnyRow, BranchRow, OwnerRow, PinRow, PinVersionRow, SessionRow
from agentmem.types import BranchId, Pin, PinScope, Scope, check_name, check_text

_COLUMNS: Final = (
    PinRow.id,
    PinRow.scope,
    PinRow.target_id,
    PinRow.key,
    PinVersionRow.version,
    PinVersionRow.text,
    PinVersionRow.author,
    PinVersionRow.created_at,
)
_NEWEST: Final = (
    select(*_COLUMNS)
    .join(
        PinVersionRow,
        (PinVersionRow.pin_id == PinRow.id) & (PinVersionRow.version == PinRow.version),
    )
    .order_by(PinRow.id)
)
_ONE: Final = _NEWEST.where(
    PinRow.scope == bindparam("where"),
    PinRow.target_id == bindparam("target"),
    PinRow.key == bindparam("pin_key"),
)
_VISIBLE: Final = _NEWEST.where(
    PinVersionRow.text.is_not(None),
    or_(
        (PinRow.scope == PinScope.USER) & (PinRow.target_id == bindparam("user_id")),
        (PinRow.scope == PinScope.SESSION) & (PinRow.target_id == bindparam("session")),
        (PinRow.scope == PinScope.BRANCH)
        & PinRow.target_id.in_(bindparam("branches", expanding=True)),
    ),
)
_HISTORY: Final = (
    select(*_COLUMNS)
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
            target = _lock_target(connection, scope, branch_id, pin_scope)
            found = _find(connection, target, key)
            _expect(found, key, expected_version)
            if found is not None and found.text == text:
                return _to_pin(found)
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
            target = _lock_target(connection, scope, branch_id, pin_scope)
            found = _find(connection, target, key)
            _expect(found, key, expected_version)
            if found is None:
                raise PinNotFoundError(f"there is no pin {key!r} of the scope {pin_scope.value}")
            if found.text is not None:
                self._write(connection, target, key, found, text=None, author=author)

        self._database.write(work)

    def visible(self, scope: Scope, branch_id: BranchId) -> tuple[Pin, ...]:
        """
        Give the pins that a prompt of this branch begins with, in their order.

        The user's come first, then the session's, then the branch's, ancestors before it; in each
        by first setting. Of one key only the innermost is given, in the outermost one's place.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> tuple[list[int], list[AnyRow]]:
            branch = find_branch(connection, scope, branch_id)
            line = [holder.id for holder, _, _ in lineage(connection, branch)]
            targets = {"user_id": branch.owner_id, "session": branch.session_id, "branches": line}
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
        return tuple({row.key: _to_pin(row) for row in rows}.values())

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
            found = _find(connection, _target(branch, pin_scope), key)
            if found is None:
                raise PinNotFoundError(f"there is no pin {key!r} of the scope {pin_scope.value}")
            return list(connection.execute(_HISTORY, {"pin": found.id}).all())

        return tuple(_to_pin(row) for row in self._database.read(work))

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
        written = _find(connection, target, key)
        assert written is not None, "a pin is there once it was written"
        return _to_pin(written)


def _target(branch: AnyRow, pin_scope: PinScope) -> dict[str, Any]:
    """Give the columns that say what a pin of this scope hangs on."""
    of_session = {"session_id": branch.session_id, "branch_id": None}
    target_id, references = {
        PinScope.USER: (branch.owner_id, {"session_id": None, "branch_id": None}),
        PinScope.SESSION: (branch.session_id, of_session),
        PinScope.BRANCH: (branch.id, {**of_session, "branch_id": branch.id}),
    }[pin_scope]
    names = {"scope": pin_scope.value, "target_id": target_id, "owner_id": branch.owner_id}
    return {**names, **references}


def _lock_target(
    connection: Connection, scope: Scope, branch_id: BranchId, pin_scope: PinScope
) -> dict[str, Any]:
    """Keep other writers off the pins of that target until the transaction ends."""
    branch = find_branch(connection, scope, branch_id)
    target = _target(branch, pin_scope)
    tables: dict[PinScope, type[OwnerRow | SessionRow | BranchRow]] = {
        PinScope.USER: OwnerRow,
        PinScope.SESSION: SessionRow,
        PinScope.BRANCH: BranchRow,
    }
    table = tables[pin_scope]
    # Weak enough to let rows be added that refer to the locked one.
    lock = select(table.id).where(table.id == target["target_id"]).with_for_update(key_share=True)
    connection.execute(lock)
    return target


def _find(connection: Connection, target: dict[str, Any], key: str) -> AnyRow | None:
    keys = {"where": target["scope"], "target": target["target_id"], "pin_key": key}
    return connection.execute(_ONE, keys).one_or_none()


def _expect(found: AnyRow | None, key: str, expected_version: int | None) -> None:
    version = found.version if found is not None else 0
    if expected_version is not None and expected_version != version:
        raise ConflictError(
            f"pin {key!r} is at version {version}, not {expected_version}: somebody else changed "
            "it first; read it again and decide again"
        )


def _to_pin(row: AnyRow) -> Pin:
    return Pin(
        key=row.key,
        version=row.version,
        text=row.text or "",
        scope=PinScope(row.scope),
        author=row.author,
        created_at=row.created_at,
        is_removed=row.text is None,
    )
