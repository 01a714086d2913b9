"""Retention: find and delete inactive sessions."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, bindparam, exists, func, select

from agentmem.errors import DamagedRowError
from agentmem.machine.logs import log
from agentmem.store.database.damage import log_unreadable, reading
from agentmem.store.database.database import Database
from agentmem.store.database.schema import AnyRow, BranchRow, OwnerRow, SessionRow
from agentmem.store.database.tenancy import check_moment
from agentmem.store.lifecycle.deletion import Deleted, delete_sessions
from agentmem.store.lifecycle.log_retention import purge_log
from agentmem.types import Scope, SessionId
from agentmem.types.fields import Checked

_STALE: Final = (
    select(
        SessionRow.id,
        SessionRow.key,
        OwnerRow.namespace,
        OwnerRow.user,
        func.max(BranchRow.updated_at).label("updated_at"),
    )
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
    .join(BranchRow, BranchRow.session_id == SessionRow.id)
    .group_by(SessionRow.id, OwnerRow.id)
    .having(func.max(BranchRow.updated_at) < bindparam("before"))
    .order_by(SessionRow.id)
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleSession(Checked):
    """A session without activity since a given time."""

    id: SessionId
    scope: Scope
    key: str


@reading("branch")
def _stale(row: AnyRow) -> StaleSession:
    if not isinstance(row.updated_at, datetime):
        raise TypeError(f"{row.updated_at!r:.80} is not a datetime")
    scope = Scope(namespace=row.namespace, user=row.user)
    return StaleSession(id=SessionId(row.id), scope=scope, key=row.key)


def _ignore(_scope: Scope, _deleted: Deleted) -> None:
    """No derived data to delete."""


class Retention:
    """Retention over all users, for operators of the database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def stale(self, before: datetime, *, namespace: str | None = None) -> tuple[StaleSession, ...]:
        """
        Return the sessions of all users that were inactive since *before*.

        Raises:
            InvalidInputError: *before* has no time zone, or is out of range in UTC.
        """
        check_moment(before)
        statement = _STALE
        if namespace is not None:
            statement = statement.where(OwnerRow.namespace == namespace)

        def work(connection: Connection) -> list[StaleSession]:
            found = []
            for row in connection.execute(statement, {"before": before}):
                try:
                    found.append(_stale(row))
                except DamagedRowError as error:
                    log_unreadable(connection, error)
            return found

        return tuple(self._database.read(work))

    def purge(
        self,
        before: datetime,
        *,
        namespace: str | None = None,
        dry_run: bool = False,
        forget: Callable[[Scope, Deleted], None] = _ignore,
    ) -> tuple[StaleSession, ...]:
        """
        Delete the sessions of `stale` and return them; with *dry_run* only return them.

        Each session is deleted in a separate transaction, and kept if it became active.
        *forget* is called after each, with the deleted ids.

        Raises:
            InvalidInputError: *before* has no time zone, or is out of range in UTC.
        """
        found = self.stale(before, namespace=namespace)
        if dry_run:
            return found
        gone, num_messages = [], 0
        for session in found:

            def work(connection: Connection, session_id: SessionId = session.id) -> Deleted:
                return _delete_if_stale(connection, session_id, before)

            deleted = self._database.write(work)
            if deleted.sessions:
                gone.append(session)
                num_messages += len(deleted.messages)
                forget(session.scope, deleted)
        self._database.forget_deleted()
        if gone:
            log(
                _log,
                logging.INFO,
                "sessions_purged",
                "{num_sessions} sessions with {num_messages} messages were purged",
                namespace=namespace,
                num_sessions=len(gone),
                num_messages=num_messages,
            )
        return tuple(gone)

    def purge_log(self, before: datetime, *, namespace: str, dry_run: bool = False) -> int:
        """
        Delete the prompt log entries older than *before* (see `log_retention`).

        Raises:
            InvalidInputError: *before* has no time zone, or is out of range in UTC.
        """
        check_moment(before)
        num = purge_log(self._database, before, namespace=namespace, dry_run=dry_run)
        if num and not dry_run:
            line = "{num_accounts} prompt log entries were purged"
            log(_log, logging.INFO, "log_purged", line, namespace=namespace, num_accounts=num)
        return num


def _delete_if_stale(connection: Connection, session_id: SessionId, before: datetime) -> Deleted:
    lock = select(BranchRow.id).where(BranchRow.session_id == session_id).order_by(BranchRow.id)
    connection.execute(lock.with_for_update())
    is_active = exists().where(BranchRow.session_id == session_id, BranchRow.updated_at >= before)
    if connection.execute(select(is_active)).scalar_one():
        return Deleted()
    gone = delete_sessions(connection, [session_id])
    return gone if gone.branches else Deleted()  # another process has deleted it
