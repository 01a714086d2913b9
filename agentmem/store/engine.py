"""
Connections: which databases can be opened, and how a read or a write runs on them.

Work is given as a function of a connection, never as a `with` block: so it can be run again after
a lock or a broken connection, and nobody can call a model inside a transaction.
"""

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.pool import NullPool, StaticPool

from agentmem.errors import DatabaseUrlError, StoreError
from agentmem.machine.forks import hold_in_fork
from agentmem.store.failures import is_transient, mask, one_line, translated
from agentmem.store.file_identity import FileIdentity

T = TypeVar("T")

BUSY_TIMEOUT_S: Final = 20.0
"""How long a write waits for its lock before it gives up."""

_left_behind: list[Any] = []
"""Pools of a parent process: closing their connections would harm those of the parent."""

_SUPPORTED: Final = "sqlite:///agent.db, sqlite:// (in memory) or postgresql://user@host/name"


def parse_url(text: str) -> URL:
    """
    Read a database URL and name the driver that we use for it.

    Raises:
        DatabaseUrlError: it is no URL, or not of a database that we can open.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise DatabaseUrlError(
            f"{mask(str(text))!r} is no database URL: use {_SUPPORTED}"
        ) from error
    if url.drivername in {"sqlite", "sqlite+pysqlite"}:
        return _sqlite_url(url)
    if url.drivername in {"postgresql", "postgresql+psycopg", "postgres"}:
        return url.set(drivername="postgresql+psycopg")
    raise DatabaseUrlError(f"cannot open a {url.drivername!r} database: use {_SUPPORTED}")


def _sqlite_url(url: URL) -> URL:
    if url.query:
        raise DatabaseUrlError(f"a SQLite URL takes no options, got {sorted(url.query)}")
    if url.host:
        raise DatabaseUrlError(
            f"a SQLite URL has three slashes before a relative path and four before an absolute "
            f"one, got host {url.host!r}"
        )
    if not is_memory(url):
        folder = Path(url.database or "").parent
        if not folder.is_dir():
            raise DatabaseUrlError(f"the folder {folder} of the database does not exist: make it")
        if Path(url.database or "").is_dir():
            raise DatabaseUrlError(f"{url.database} is a folder, not a database file")
    return url.set(drivername="sqlite")


def is_memory(url: URL) -> bool:
    """Tell whether *url* is of a SQLite database that ends with its connection."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def place_of(url: URL) -> str:
    """Give *url* as it may be shown."""
    return mask(url.render_as_string(hide_password=True))


def connect_engine(url: URL, **options: Any) -> Engine:
    """
    Make an engine that begins its transactions itself, as the isolation level needs it.

    Raises:
        DatabaseUrlError: the driver is not installed.
    """
    try:
        engine = create_engine(url, **options)
    except ModuleNotFoundError as error:
        raise DatabaseUrlError(
            f"the driver for {place_of(url)} is not installed: pip install 'agentmem[postgres]'"
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
        wanted = "NORMAL" if options.get("agentmem_soon", False) else "FULL"
        if connection.info.get("synchronous") != wanted:
            connection.exec_driver_sql(f"PRAGMA synchronous = {wanted}")
            connection.info["synchronous"] = wanted
    # A write that began as a read would fail at once, without waiting, where another one is first.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_write else "BEGIN")


def _begin_postgres(connection: Connection) -> None:
    if connection.get_execution_options().get("agentmem_soon", False):
        connection.exec_driver_sql("SET LOCAL synchronous_commit = off")


def _set_up_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Enforce references, survive a power cut, and leave no deleted text in free pages."""
    connection.execute("PRAGMA busy_timeout = 100")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA synchronous = FULL")
    deadline = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreads writers, hides nothing
        else:
            return


def _set_up_postgres(connection: Any, _record: object) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"SET lock_timeout = {int(BUSY_TIMEOUT_S * 1000)}")
    connection.commit()


def bare_engine(url: URL) -> Engine:
    """Make an engine for looking and migrating: one connection at a time, nothing set up."""
    if url.get_backend_name() == "sqlite":
        return connect_engine(url, poolclass=NullPool, connect_args={"timeout": BUSY_TIMEOUT_S})
    return connect_engine(url, poolclass=NullPool, connect_args={"connect_timeout": 10})


class Database:
    """
    Runs reads and writes, each in a transaction of its own that never outlives the call.

    A write waits for its lock with jitter, so that many writers do not wake up together. SQLite in
    memory has one connection, which threads take in turn.
    """

    def __init__(self, url: URL) -> None:
        self.place = place_of(url)
        self.is_memory = is_memory(url)
        self._pid = os.getpid()
        self._is_closed = False
        self._in_use = 0
        self._is_held = self._is_torn = False
        self._unused = threading.Condition()
        is_postgres = url.get_backend_name() == "postgresql"
        self._file: FileIdentity | None = None
        self._turn = threading.Lock() if self.is_memory else nullcontext()
        if is_postgres:
            self._engine = connect_engine(
                url,
                pool_pre_ping=True,
                pool_recycle=1800,
                connect_args={"connect_timeout": 10},
            )
            event.listen(self._engine, "connect", _set_up_postgres)
            event.listen(self._engine, "begin", _begin_postgres)
        else:
            options: dict[str, Any] = {"connect_args": {"check_same_thread": False}}
            if self.is_memory:
                options["poolclass"] = StaticPool
            self._engine = connect_engine(url, **options)
            event.listen(self._engine, "connect", _set_up_sqlite)
            if not self.is_memory:
                self._file = FileIdentity(url.database or "")
                self._file.watch(self._engine)
        # PostgreSQL would else give each statement of a read a newer view than the one before.
        snapshot = {"isolation_level": "REPEATABLE READ"} if is_postgres else {}
        self._reader = self._engine.execution_options(**snapshot)
        self._writer = self._engine.execution_options(agentmem_write=True)
        self._soon = self._writer.execution_options(agentmem_soon=True)
        hold_in_fork(self)

    @property
    def engine(self) -> Engine:
        """The pool itself, for migrations of a database in memory and for tests that watch it."""
        return self._engine

    def close(self) -> None:
        """
        Close every connection; nothing can be read or written any more.

        What is being read or written is waited for, as long as for a lock: closing a connection
        that another thread uses ends the process. A database in memory is left to that thread.
        """
        if self.is_memory and os.getpid() != self._pid:
            return  # the parent's
        with self._unused:
            self._is_closed = True
            is_unused = self._unused.wait_for(lambda: self._in_use == 0, BUSY_TIMEOUT_S)
        if is_unused or not self.is_memory:
            self._engine.dispose()

    def forget_deleted(self) -> None:
        """
        Leave no deleted text behind in SQLite's write-ahead log, as far as readers allow.

        A reader in another process that is not done keeps the log until the next deletion, or
        until the last connection to the database is closed.
        """
        # Closing the database has closed the log too.
        if self._is_file and not self._is_closed:
            with self._used(), translated(self.place):
                raw = self._engine.raw_connection()
                try:
                    raw.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                finally:
                    raw.close()

    def read(self, work: Callable[[Connection], T]) -> T:
        """
        Run *work* on a consistent view and give its result.

        Raises:
            StoreError: the database could not be read, or this was closed.
        """
        return self._run(self._reader, work)

    def write(self, work: Callable[[Connection], T]) -> T:
        """
        Run *work* and commit; whatever *work* raises rolls it back.

        *work* runs again from the start where a lock or a connection was lost before the commit, so
        it must do nothing but talk to its connection.

        Raises:
            DatabaseBusyError: the lock did not come in time.
            StoreError: the database could not be written, or this was closed.
        """
        return self._run(self._writer, work)

    def write_soon(self, work: Callable[[Connection], T]) -> T:
        """
        Do what `write` does, but leave it to the next `write` to wait for the disk.

        A killed process loses nothing. A power cut may take what was written last in this way, and
        never something that a later `write` of any process has followed.
        """
        return self._run(self._soon, work)

    def _run(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        with self._used():
            return self._retried(engine, work)

    @contextmanager
    def _used(self) -> Iterator[None]:
        """Keep the connections from being closed."""
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
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        attempt = 0
        while True:
            with translated(self.place):
                try:
                    return self._once(engine, work)
                except DBAPIError as error:
                    if not is_transient(error) or time.monotonic() > deadline:
                        raise
            attempt += 1
            time.sleep(random.uniform(0, min(0.05, 0.001 * 2**attempt)))  # noqa: S311 - jitter

    def _once(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        watched = None if engine is self._reader else self._file
        with self._turn, engine.connect() as connection:
            if watched is not None:
                watched.check(connection.info)
            transaction = connection.begin()
            try:
                result = work(connection)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except DBAPIError as error:
                if not error.connection_invalidated:
                    raise
                raise StoreError(
                    f"{self.place} went away during a commit, so it is not known whether the write "
                    "was stored: repeat it with the same client_key, which cannot double it"
                ) from error
            if watched is not None:
                watched.learn(connection.info)
                # Removed since: what was committed may be gone, so it is not acknowledged.
                watched.check(connection.info)
            return result

    def _require_own_process(self) -> None:
        if self._is_torn:
            raise StoreError(
                f"this process was forked while {self.place} was being written, and cannot use "
                "it: fork when no thread is at work, or start workers with the spawn method"
            )
        if self.is_memory and os.getpid() != self._pid:
            raise StoreError(
                f"{self.place} is in the memory of process {self._pid}, and this is its fork "
                f"{os.getpid()}: open a database file, which processes can share"
            )

    def hold(self) -> None:
        """
        Let no fork be made in the middle of a read or a write; called before one.

        A child must not inherit an open connection to a SQLite file: it would take itself to
        have locks that are its parent's.
        """
        with self._unused:
            self._is_held = True
            self._unused.wait_for(lambda: self._in_use == 0, BUSY_TIMEOUT_S)
        if self._is_file:
            self._engine.dispose()

    def let_go(self) -> None:
        """Go on after a fork."""
        with self._unused:
            self._is_held = False
            self._unused.notify_all()

    def begin_anew(self) -> None:
        """Open connections of its own in a fork: two processes cannot talk over one."""
        self._is_torn = self._is_file and self._in_use > 0
        self._in_use, self._unused, self._is_held = 0, threading.Condition(), False
        if not self.is_memory:
            self._pid = os.getpid()
            _left_behind.append(self._engine.pool)
            self._engine.dispose(close=False)

    @property
    def _is_file(self) -> bool:
        return self._engine.dialect.name == "sqlite" and not self.is_memory
