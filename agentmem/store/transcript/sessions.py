"""Sessions and their branches."""

from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import (
    Connection,
    Insert,
    bindparam,
    case,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.orm import aliased

from agentmem.errors import DamagedRowError, InvalidInputError, SessionNotFoundError
from agentmem.store.chain.branch_chain import genesis_of
from agentmem.store.chain.user_chain import user_genesis
from agentmem.store.database.damage import check_row, log_unreadable, reading
from agentmem.store.database.database import Database
from agentmem.store.database.schema import (
    AnyRow,
    AnySelect,
    Base,
    BranchRow,
    OwnerRow,
    PinRow,
    SessionRow,
)
from agentmem.store.database.tenancy import check_position, is_owner, not_found, owner_digest
from agentmem.store.transcript.branches import (
    ancestors,
    change_state,
    find_branch,
    find_branches,
    to_branch_info,
)
from agentmem.store.transcript.tool_calls import inherit_open_calls
from agentmem.types import (
    BranchId,
    BranchInfo,
    BranchState,
    Inherit,
    Scope,
    SessionId,
    SessionInfo,
    check_name,
)

_LINE: Final = aliased(BranchRow)
_SOME_LINE: Final = aliased(BranchRow)
_ACTIVE: Final = (
    select(_LINE.id)
    .where(
        _LINE.session_id == SessionRow.id,
        or_(_LINE.parent_id.is_(None), _LINE.line.is_not(None)),
    )
    .order_by(func.coalesce(_LINE.line, 0).desc())
    .limit(1)
    .correlate(SessionRow)
    .scalar_subquery()
)
_LATER_LINES: Final = (
    select(_ACTIVE)
    .select_from(SessionRow)
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
    .where(
        is_owner(),
        exists().where(_SOME_LINE.session_id == SessionRow.id, _SOME_LINE.line.is_not(None)),
    )
)
_SESSIONS: Final[AnySelect] = (
    select(
        SessionRow.id,
        SessionRow.key,
        SessionRow.created_at,
        SessionRow.timezone,
        SessionRow.day,
        OwnerRow.namespace,
        OwnerRow.user,
        func.min(case((BranchRow.parent_id.is_(None), BranchRow.id))).label("main"),
        _ACTIVE.label("active"),
        func.sum(BranchRow.head - BranchRow.forked_at).label("num_messages"),
        func.max(BranchRow.updated_at).label("updated_at"),
    )
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
    .join(BranchRow, BranchRow.session_id == SessionRow.id)
    .where(is_owner())
    .group_by(SessionRow.id, OwnerRow.id)
)
_ID: Final = (
    select(SessionRow.id)
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
    .where(is_owner(), SessionRow.key == bindparam("key"))
)
_BY_KEY: Final = _SESSIONS.where(SessionRow.key == bindparam("key"))
# Ties of times are broken by id, so that the order is deterministic.
_NEWEST_FIRST: Final = _SESSIONS.order_by(
    func.max(BranchRow.updated_at).desc(), SessionRow.id.desc()
)

_USERS: Final = select(OwnerRow.user).where(
    OwnerRow.namespace == bindparam("namespace"),
    exists().where(SessionRow.owner_id == OwnerRow.id)
    | exists().where(PinRow.owner_id == OwnerRow.id),
)


class Sessions:
    """Finds, creates and forks sessions and branches. Bound to a scope: ids give no access."""

    def __init__(self, database: Database, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def get_or_create(
        self,
        scope: Scope,
        key: str,
        *,
        timezone: str | None = None,
        day_of: Callable[[datetime], date] = datetime.date,
    ) -> SessionInfo:
        """
        Return the session of that key; the first of concurrent callers creates it.

        A new one gets that time zone, and the date that *day_of* returns for the current time.

        Raises:
            InvalidInputError: *key* is empty, too long or cannot be stored.
        """
        check_name("session key", key)
        found = self._database.read(lambda connection: _find(connection, scope, key))
        return found or self._database.write(
            lambda connection: self._create(connection, scope, key, timezone, day_of)
        )

    def get(self, scope: Scope, key: str) -> SessionInfo:
        """
        Return the session of that key.

        Raises:
            SessionNotFoundError: this user has no session of that key.
        """
        check_name("session key", key)
        found = self._database.read(lambda connection: _find(connection, scope, key))
        if found is None:
            raise not_found("session", key, scope)
        return found

    def list(self, scope: Scope) -> tuple[SessionInfo, ...]:
        """
        Return all sessions of the scope, most recently active first.

        Corrupt ones are omitted, and logged.
        """

        def work(connection: Connection) -> list[SessionInfo]:
            found = []
            for row in connection.execute(_NEWEST_FIRST, {"owner": owner_digest(scope)}):
                try:
                    found.append(_to_session_info(row))
                except DamagedRowError as error:
                    log_unreadable(connection, error)
            return found

        return tuple(self._database.read(work))

    def find_id(self, scope: Scope, key: str) -> SessionId:
        """
        Return the id of the session of that key, also if its other data is corrupt.

        Raises:
            SessionNotFoundError: this user has no session of that key.
        """
        check_name("session key", key)
        keys = {"owner": owner_digest(scope), "key": key}
        found = self._database.read(lambda connection: connection.scalar(_ID, keys))
        if found is None:
            raise not_found("session", key, scope)
        return SessionId(found)

    def users(self, namespace: str) -> tuple[str, ...]:
        """
        List the users of *namespace* with stored data, by name.

        Corrupt names are omitted, and logged.
        """

        def work(connection: Connection) -> list[str]:
            found = []
            for row in connection.execute(_USERS, {"namespace": namespace}):
                try:
                    check_row("owner", row)
                    found.append(row.user)
                except DamagedRowError as error:
                    log_unreadable(connection, error)
            return found

        return tuple(sorted(self._database.read(work)))

    def branch(self, scope: Scope, branch_id: BranchId) -> BranchInfo:
        """
        Return the current state of a branch.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """
        return self._database.read(
            lambda connection: to_branch_info(find_branch(connection, scope, branch_id))
        )

    def lineage(self, scope: Scope, branch_id: BranchId) -> tuple[BranchInfo, ...]:
        """
        Return a branch and its ancestors, up to ``main``, in one query.

        Raises:
            SessionNotFoundError: no such branch of this scope.
        """

        def work(connection: Connection) -> list[AnyRow]:
            branch = find_branch(connection, scope, branch_id)
            return [branch, *ancestors(connection, branch)]

        return tuple(map(to_branch_info, self._database.read(work)))

    def later_lines(self, scope: Scope) -> tuple[tuple[BranchInfo, ...], ...]:
        """Return the lineage of the current line of each session that is not on ``main``."""

        def work(connection: Connection) -> list[list[AnyRow]]:
            keys = {"owner": owner_digest(scope)}
            found = connection.execute(_LATER_LINES, keys).scalars().all()
            lines = []
            for one in found:
                # A corrupt one does not affect the user's other sessions.
                with suppress(DamagedRowError, SessionNotFoundError):
                    row = find_branch(connection, scope, BranchId(one))
                    if row.parent_id is not None:
                        lines.append([row, *ancestors(connection, row)])
            return lines

        lines = self._database.read(work)
        return tuple(tuple(map(to_branch_info, line)) for line in lines)

    def branches(self, scope: Scope, session_id: SessionId) -> tuple[BranchInfo, ...]:
        """
        Return all branches of a session, in order of creation.

        Raises:
            SessionNotFoundError: no such session of this scope.
        """
        rows = self._database.read(lambda connection: find_branches(connection, scope, session_id))
        return tuple(to_branch_info(row) for row in rows)

    def fork(
        self, scope: Scope, parent: BranchId, *, name: str, inherit: Inherit, at: int
    ) -> BranchInfo:
        """
        Create a branch that inherits *parent* up to position *at*. The parent is unchanged.

        With ``Inherit.ALL``, open calls are open in the new branch too, and its messages answer or
        close them. Otherwise it begins without.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            InvalidInputError: *parent* has no position *at*, or *name* cannot be stored.
        """
        check_name("branch name", name)
        check_position("at", at)

        def work(connection: Connection) -> AnyRow:
            origin = find_branch(connection, scope, parent)
            if not 0 <= at <= origin.head:
                raise InvalidInputError(
                    f"branch {parent} has positions up to {origin.head}: cannot fork at {at}"
                )
            branch_id = insert_branch(
                connection,
                session_id=origin.session_id,
                parent_id=parent,
                name=name,
                forked_at=at,
                head=at,
                inherit=inherit.value,
                updated_at=self._clock(),
            )
            if inherit is Inherit.ALL:
                inherit_open_calls(connection, origin, child=branch_id, at=at)
            return find_branch(connection, scope, branch_id)

        return to_branch_info(self._database.write(work))

    def set_state(
        self, scope: Scope, branch_id: BranchId, *, expected: BranchState, state: BranchState
    ) -> BranchInfo:
        """
        Change the state of a branch if it is the expected one.

        Raises:
            SessionNotFoundError: no such branch of this scope.
            ConflictError: it is in another state; nothing was changed.
        """

        def work(connection: Connection) -> AnyRow:
            found = find_branch(connection, scope, branch_id, lock=True)
            change_state(connection, found, expected=expected, state=state, moment=self._clock())
            return find_branch(connection, scope, branch_id)

        return to_branch_info(self._database.write(work))

    def set_clock(
        self, scope: Scope, session_id: SessionId, *, timezone: str | None, day: date | None
    ) -> None:
        """
        Set the time zone and the date of a session.

        Raises:
            SessionNotFoundError: no such session of this scope.
        """

        def work(connection: Connection) -> None:
            find_branches(connection, scope, session_id)
            clock = {"timezone": timezone, "day": None if day is None else day.isoformat()}
            connection.execute(
                update(SessionRow).where(SessionRow.id == session_id).values(**clock)
            )

        self._database.write(work)

    def _create(
        self,
        connection: Connection,
        scope: Scope,
        key: str,
        timezone: str | None,
        day_of: Callable[[datetime], date],
    ) -> SessionInfo:
        owner_id = ensure_owner(connection, scope)
        now = self._clock()
        session = {
            "owner_id": owner_id,
            "key": key,
            "created_at": now,
            "timezone": timezone,
            "day": day_of(now).isoformat(),
        }
        created = connection.execute(
            insert_unless_there(connection, SessionRow).returning(SessionRow.id), session
        ).scalar_one_or_none()
        if created is not None:
            insert_branch(
                connection,
                session_id=created,
                parent_id=None,
                name="main",
                forked_at=0,
                head=0,
                inherit=Inherit.ALL.value,
                updated_at=now,
            )
        found = _find(connection, scope, key)
        if found is None:
            raise DamagedRowError("session", session=key, reason="it has no branch")
        return found


def ensure_owner(connection: Connection, scope: Scope) -> int:
    """Return the id of the scope's row, created on first use."""
    owner = {
        "digest": owner_digest(scope),
        "namespace": scope.namespace,
        "user": scope.user,
        "chain": user_genesis(scope.namespace, scope.user),
    }
    connection.execute(insert_unless_there(connection, OwnerRow), owner)
    return connection.execute(
        select(OwnerRow.id).where(OwnerRow.digest == owner["digest"])
    ).scalar_one()


def insert_unless_there(connection: Connection, table: type[Base]) -> Insert:
    """Insert unless it exists; wait for a concurrent insert of the same."""
    # Only the dialect of the open database is loaded; at the top all would load their drivers.
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - see above

        return postgresql.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import sqlite  # noqa: PLC0415 - see above

    return sqlite.insert(table).on_conflict_do_nothing()


def insert_branch(connection: Connection, **columns: Any) -> BranchId:
    """Insert the row of a new, open branch without calls."""
    statement: Insert = insert(BranchRow).values(open_calls=0, state=BranchState.OPEN.value)
    columns["chain"] = columns["log_chain"] = genesis_of(connection, columns)
    row_id = connection.execute(statement.returning(BranchRow.id), columns).scalar_one()
    return BranchId(row_id)


def _find(connection: Connection, scope: Scope, key: str) -> SessionInfo | None:
    row = connection.execute(_BY_KEY, {"owner": owner_digest(scope), "key": key}).one_or_none()
    return None if row is None else _to_session_info(row)


@reading("session")
def _to_session_info(row: AnyRow) -> SessionInfo:
    return SessionInfo(
        id=SessionId(row.id),
        scope=Scope(namespace=row.namespace, user=row.user),
        key=row.key,
        main=BranchId(row.main),
        line=BranchId(row.active),
        num_messages=int(row.num_messages),
        created_at=row.created_at,
        updated_at=row.updated_at,
        timezone=row.timezone,
        day=None if row.day is None else date.fromisoformat(row.day),
    )
