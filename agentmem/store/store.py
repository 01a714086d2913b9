"""The store facade: opens the database and provides its parts."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from agentmem.config import DatabaseConfig
from agentmem.store.database.database import Database
from agentmem.store.database.health import Probe
from agentmem.store.database.migrate import create_tables, ensure_current
from agentmem.store.database.sqlite import check_writable
from agentmem.store.database.urls import is_file, is_memory, parse_url
from agentmem.store.integrity.heads import Heads
from agentmem.store.lifecycle.deletion import Deletion
from agentmem.store.lifecycle.replacements import Replacements
from agentmem.store.lifecycle.retention import Retention
from agentmem.store.prompt_log.prompt_log import PromptLog
from agentmem.store.transcript.lines import Lines
from agentmem.store.transcript.messages import Messages
from agentmem.store.transcript.pins import Pins
from agentmem.store.transcript.sessions import Sessions
from agentmem.store.transfer.export_import import Transfer
from agentmem.store.vectors.retrieval_store import DatabaseRetrievalStore

T = TypeVar("T")


def _now() -> datetime:
    return datetime.now(UTC)


class Store:
    """
    Sessions and all their data, in one database.

    Thread-safe; a forked process opens new connections.

    Raises:
        StoreError: from every method, when a database operation fails.
    """

    def __init__(self, database: Database, *, clock: Callable[[], datetime] = _now) -> None:
        self.database = database
        self.sessions = Sessions(database, clock)
        self.messages = Messages(database, clock)
        self.pins = Pins(database, clock)
        self.replacements = Replacements(database, clock)
        self.prompt_log = PromptLog(database, clock)
        self.lines = Lines(database, clock)
        self.deletion = Deletion(database)
        self.retention = Retention(database)
        self.transfer = Transfer(database)
        self.heads = Heads(database)
        self.probe = Probe(database)

    def retrieval_store(self, namespace: str) -> DatabaseRetrievalStore:
        """Return the retriever's view of a namespace: messages and vectors."""
        return DatabaseRetrievalStore(self.database, namespace)

    def snapshot(self, work: Callable[[], T]) -> T:
        """
        Run *work* so that all its reads of this store see one moment, in one transaction.

        *work* may run again from the start, and does nothing but read.

        Raises:
            StoreError: the database could not be read, or *work* tried to write.
        """
        return self.database.snapshot(work)

    @classmethod
    def open(
        cls,
        url: str,
        *,
        clock: Callable[[], datetime] = _now,
        config: DatabaseConfig | None = None,
        read_only: bool = False,
    ) -> Self:
        """
        Open the database at *url*, and create the tables in an empty one.

        Args:
            url: ``sqlite:///agent.db``, ``sqlite://`` (in memory) or ``postgresql://...``.
            clock: returns the timestamp of new rows; nothing is ordered by it.
            config: pool and timeouts, and whether a missing database is created.
            read_only: whether nothing is written, neither in the database nor beside it.

        Raises:
            DatabaseUrlError: no database can be opened there.
            SchemaVersionError: the database is older or newer than this package, or another
                program's.
            StoreError: the database cannot be reached or written.
        """
        parsed = parse_url(url)
        if is_memory(parsed):
            database = Database(parsed, config)
            database.write(create_tables)
            database.is_read_only = read_only
        else:
            if is_file(parsed) and not read_only:
                check_writable(Path(parsed.database or ""))
            is_made = (config is None or config.create) and not read_only
            ensure_current(parsed, create=is_made)
            database = Database(parsed, config, read_only=read_only)
            database.watch_schema()
        return cls(database, clock=clock)

    def close(self) -> None:
        """
        Close all connections. An in-memory database is deleted.

        All other methods raise StoreError afterwards.
        """
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
