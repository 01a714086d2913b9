"""
Connections: opening databases, and running reads and writes on them.

Work is a function of a connection, never a `with` block: so it can be retried after a lock timeout
or a lost connection, and no model is called inside a transaction.
"""

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool, StaticPool

from agentmem.config import DatabaseConfig
from agentmem.errors import DatabaseUrlError, ReadOnlyDatabaseError, StoreError
from agentmem.machine.backoff import back_off
from agentmem.machine.forks import hold_in_fork
from agentmem.machine.logs import log
from agentmem.store.database.compatibility import SchemaWatch
from agentmem.store.database.damage import guarded
from agentmem.store.database.error_translation import (
    is_stale_plan,
    is_transient,
    is_unprepared,
    one_line,
    translate_db_errors,
)
from agentmem.store.database.file_identity import FileIdentity
from agentmem.store.database.postgres import PostgresSetup
from agentmem.store.database.sqlite import ReadOnlyFile, set_up
from agentmem.store.database.urls import is_memory, place_of

T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 20.0
"""Maximum wait of a write for its lock, in seconds."""

_SLOW_S: Final = 1.0
"""Longer waits for locks and connections are logged."""

_log = logging.getLogger(__name__)

_left_behind: list[Any] = []
"""Pools of the parent process: closing their connections would close those of the parent."""


def connect_engine(url: URL, **options: Any) -> Engine:
    """
    Create an engine that issues BEGIN itself, as the isolation level requires.

    Raises:
        DatabaseUrlError: the driver is not installed.
    """
    try:
        engine = create_engine(url, **options)
    except ModuleNotFoundError as error:
        raise DatabaseUrlError(
            f"the driver for {place_of(url)} is not installed: pip install 'psycopg[binary]'"
        ) from error
    except (ArgumentError, NoSuchModuleError, TypeError, ValueError) as error:
        raise DatabaseUrlError(f"cannot open {place_of(url)}: {one_line(error)}") from error
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", _leave_transactions_to_us)
        event.listen(engine, "begin", _begin)
    return engine


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None


def _begin(connection: Connection) -> None:
    options = connection.get_execution_options()
    is_write = options.get("agentmem_write", False)
    if is_write:
        wanted = "NORMAL" if options.get("agentmem_not_durable", False) else "FULL"
        if connection.info.get("synchronous") != wanted:
            connection.exec_driver_sql(f"PRAGMA synchronous = {wanted}")
            connection.info["synchronous"] = wanted
    # A write that begins as a read would fail at once, without waiting, on a concurrent write.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def bare_engine(url: URL, *, reader: ReadOnlyFile | None = None) -> Engine:
    """Create an engine for inspection and migration: one connection at a time, no setup."""
    if reader is not None:
        return connect_engine(url, poolclass=NullPool, creator=reader.connect)
    if url.get_backend_name() == "sqlite":
        return connect_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_S})
    engine = connect_engine(url, poolclass=NullPool)
    PostgresSetup(url, DatabaseConfig(), BUSY_TIMEOUT_S).listen(engine)
    return engine.execution_options(**_READ_WRITE)


_READ_WRITE: Final[dict[str, Any]] = {
    "isolation_level": "READ COMMITTED",
    "postgresql_readonly": False,
}
"""Overrides the defaults of the database and the role."""


def _pool(config: DatabaseConfig) -> dict[str, Any]:
    return {
        "pool_size": config.pool_size,
        "max_overflow": config.max_overflow,
        "pool_timeout": config.pool_timeout_s,
    }


SNAPSHOT_CACHE: Final = "agentmem_snapshot"
"""
Execution option of the connection of a `Database.snapshot`: a dict that caches its reads.

Several parts look up the same branch, and in a snapshot it is the same row.
"""


class Database:
    """
    Runs reads and writes, each in a separate transaction that ends with the call.

    A write waits for its lock with jitter, so that concurrent writers do not wake up together.
    In-memory SQLite has one connection, which threads use alternately.
    """

    def __init__(
        self, url: URL, config: DatabaseConfig | None = None, *, read_only: bool = False
    ) -> None:
        self.place = place_of(url)
        self.is_memory = is_memory(url)
        self.is_read_only = read_only
        self._given = config
        self._config = config or DatabaseConfig()
        self._pid = os.getpid()
        self._is_closed = False
        self._in_use = 0
        self._is_held = self._is_torn = False
        self._unused = threading.Condition()
        self._file: FileIdentity | None = None
        self._lock = threading.Lock() if self.is_memory else nullcontext()
        self._postgres: PostgresSetup | None = None
        self._read_only_file: ReadOnlyFile | None = None
        if url.get_backend_name() == "postgresql":
            self._engine = self._postgres_engine(url)
        else:
            self._engine = self._sqlite_engine(url)
        is_postgres = self._postgres is not None
        # Else PostgreSQL would give each statement of a read a newer snapshot.
        snapshot = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        self._reader = self._engine.execution_options(**snapshot if is_postgres else {})
        self._writer = self._engine.execution_options(
            agentmem_write=True, **_READ_WRITE if is_postgres else {}
        )
        self._not_durable = self._writer.execution_options(agentmem_not_durable=True)
        self._schema: SchemaWatch | None = None
        self._snapshot = threading.local()
        hold_in_fork(self)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self._is_closed

    def watch_schema(self) -> None:
        """Reject tables that another process migrates to an incompatible revision."""
        self._schema = SchemaWatch()

    def _postgres_engine(self, url: URL) -> Engine:
        config = self._config
        engine = connect_engine(url, pool_pre_ping=True, pool_recycle=1800, **_pool(config))
        self._postgres = PostgresSetup(url, config, self._lock_timeout_s)
        self._postgres.listen(engine)
        return engine

    def _sqlite_engine(self, url: URL) -> Engine:
        path = Path(url.database or "")
        if self.is_read_only and not self.is_memory:
            # Each read checks again for files beside the database.
            self._read_only_file = ReadOnlyFile(path)
            return connect_engine(url, poolclass=NullPool, creator=self._read_only_file.connect)
        pool = {"poolclass": StaticPool} if self.is_memory else _pool(self._config)
        engine = connect_engine(url, connect_args={"check_same_thread": False}, **pool)

        def ready(connection: sqlite3.Connection, _record: object) -> None:
            set_up(connection, self._lock_timeout_s)

        event.listen(engine, "connect", ready)
        if not self.is_memory:
            self._file = FileIdentity(url.database or "")
            self._file.watch(engine)
        return engine

    @property
    def _lock_timeout_s(self) -> float:
        return self._given.lock_timeout_s if self._given else BUSY_TIMEOUT_S

    @property
    def engine(self) -> Engine:
        """The pool, for migrations of an in-memory database and for tests."""
        return self._engine

    def close(self) -> None:
        """
        Close all connections; later reads and writes raise.

        Running reads and writes are awaited, up to the lock timeout: closing a connection that
        another thread uses crashes the process. An in-memory database is left to that thread.
        """
        if self.is_memory and os.getpid() != self._pid:
            return  # the parent's
        with self._unused:
            self._is_closed = True
            is_unused = self._unused.wait_for(lambda: self._in_use == 0, self._lock_timeout_s)
        if is_unused or not self.is_memory:
            self._engine.dispose()
        if self._read_only_file is not None:
            self._read_only_file.close()

    def forget_deleted(self) -> None:
        """
        Truncate SQLite's write-ahead log, which may have deleted text, as far as readers allow.

        An active reader in another process keeps the log until the next deletion, or until the
        last connection to the database is closed.
        """
        # Closing the database has truncated the log too.
        if self._is_file and not self._is_closed:
            with self._used(), translate_db_errors(self.place):
                raw = self._engine.raw_connection()
                try:
                    raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    raw.close()

    def read(self, work: Callable[[Connection], T]) -> T:
        """
        Run *work* on one consistent snapshot and return its result.

        Within `snapshot` it joins the transaction that is open in this thread.

        Raises:
            StoreError: the database cannot be read, or this is closed.
        """
        joined: Connection | None = getattr(self._snapshot, "connection", None)
        if joined is not None:
            return work(joined)
        return self._run(self._reader, work)

    def snapshot(self, work: Callable[[], T]) -> T:
        """
        Run *work* so that all its reads join one transaction and see one moment.

        Beginning and ending a transaction costs more than looking up a few rows. *work* may run
        again from the start, as in `read`, and does nothing but read: models are called and tokens
        counted afterwards.

        Raises:
            StoreError: the database could not be read, or *work* tried to write.
        """

        def joined(connection: Connection) -> T:
            if getattr(self._snapshot, "connection", None) is not None:
                return work()
            self._snapshot.connection = connection.execution_options(**{SNAPSHOT_CACHE: {}})
            try:
                return work()
            finally:
                self._snapshot.connection = None

        return self.read(joined)

    def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:
        """
        Run *work* and commit; an exception of *work* rolls back.

        *work* is retried from the start if a lock or a connection was lost before the commit, so
        it must have no side effects besides its connection. A write that is not *durable* is
        synced to disk with the next durable one: a killed process loses nothing, and a power cut
        may lose the last such writes, but none that a durable write of any process follows.

        Raises:
            ReadOnlyDatabaseError: this was opened read-only.
            DatabaseBusyError: the lock timed out.
            StoreError: the database cannot be written, or this is closed.
        """
        if getattr(self._snapshot, "connection", None) is not None:
            raise StoreError(f"a snapshot is read-only: {work!r:.80} cannot run within it")
        if self.is_read_only:
            raise ReadOnlyDatabaseError(
                f"{self.place} was opened with read_only=True: open it without to write"
            )
        return self._run(self._writer if durable else self._not_durable, work)

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        with self._used():
            return self._retried(engine, work)

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Prevent the connections from being closed."""
        self._require_own_process()
        with self._unused:
            self._unused.wait_for(lambda: not self._is_held)
            if self._is_closed:
                raise StoreError("this store is closed: open it again")
            self._in_use += 1
        try:
            yield
        finally:
            with self._unused:
                self._in_use -= 1
                self._unused.notify_all()

    def _retried(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        started = time.monotonic()
        deadline = started + self._lock_timeout_s
        attempt = 0
        while True:
            with translate_db_errors(self.place):
                try:
                    result = self._once(engine, work)
                except DBAPIError as error:
                    if not is_transient(error) or time.monotonic() > deadline:
                        self._log_wait(started, attempt, is_done=False)
                        self._look_at_schema(engine)
                        raise
                    if is_stale_plan(error):
                        self._engine.dispose()  # other connections have prepared the statement too
                    if self._postgres is not None and is_unprepared(error):
                        self._postgres.prepare_nothing()
                else:
                    self._log_wait(started, attempt, is_done=True)
                    return result
            attempt += 1
            back_off(attempt, base_s=0.001, max_s=0.05)

    def _log_wait(self, started: float, attempts: int, *, is_done: bool) -> None:
        seconds = time.monotonic() - started
        if attempts and seconds > _SLOW_S:
            log(
                _log,
                logging.WARNING,
                "database_waited",
                "waited {seconds:.1f} s for {place}, {attempts} attempts",
                place=self.place,
                attempts=attempts,
                seconds=seconds,
                is_stored=is_done,
            )

    def _look_at_schema(self, engine: Engine) -> None:
        """Raise if a statement may have failed because of a concurrent migration."""
        if self._schema is not None:
            self._schema.look_again()
            with suppress(DBAPIError):
                self._once(engine, lambda _: None)

    def _once(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        watched = None if engine is self._reader else self._file
        with self._lock, engine.connect() as connection:
            if watched is not None:
                watched.check(connection.info)
            transaction = connection.begin()
            try:
                if self._schema is not None:
                    self._schema.check(connection)
                result = guarded(connection, work)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise StoreError(
                    f"{self.place} was lost during a commit, so it is unknown whether the write "
                    "was stored: retry with the same client_key, which is idempotent"
                ) from error
            if watched is not None:
                watched.learn(connection.info)
                # Removed meanwhile: the commit may be lost, so it is not acknowledged.
                watched.check(connection.info)
            return result

    def _require_own_process(self) -> None:
        if self._is_torn:
            raise StoreError(
                f"this process was forked while {self.place} was being written, and cannot use "
                "it: fork when no thread uses it, or start workers with the spawn method"
            )
        if self.is_memory and os.getpid() != self._pid:
            raise StoreError(
                f"{self.place} is in memory of process {self._pid}, and this is its fork "
                f"{os.getpid()}: open a database file, which processes can share"
            )

    def hold(self) -> None:
        """
        Block forks during a read or a write; called before a fork.

        A child must not inherit an open connection to a SQLite file: it would assume the locks of
        its parent.
        """
        with self._unused:
            self._is_held = True
            self._unused.wait_for(lambda: self._in_use == 0, BUSY_TIMEOUT_S)
        if self._is_file:
            self._engine.dispose()

    def let_go(self) -> None:
        """Unblock after a fork."""
        with self._unused:
            self._is_held = False
            self._unused.notify_all()

    def begin_anew(self) -> None:
        """Open new connections in a fork: two processes cannot share one."""
        self._is_torn = self._is_file and self._in_use > 0
        self._in_use, self._unused, self._is_held = 0, threading.Condition(), False
        if not self.is_memory:
            self._pid = os.getpid()
            self._snapshot = threading.local()
            _left_behind.append(self._engine.pool)
            self._engine.dispose(close=False)

    @property
    def _is_file(self) -> bool:
        return self._engine.dialect.name == "sqlite" and not self.is_memory
