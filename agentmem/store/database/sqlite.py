"""
SQLite connections: files that only their owner reads, and reading that leaves nothing behind.

A reader of a write-ahead log makes files beside the database, which one that may not write cannot
remove, and which keep those who may from writing. How a file is read is therefore chosen by what
is found beside it, for each connection anew.
"""

import os
import random
import shutil
import sqlite3
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from agentmem.errors import DatabaseUrlError, StoreError
from agentmem.store.database.hashing import follow

_POLL_MS: Final = 100


def _read_any_text(connection: sqlite3.Connection) -> None:
    """Read bytes that are no UTF-8 as a text that nothing stores, so that no whole read fails."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")


def set_up(connection: sqlite3.Connection, lock_timeout_s: float) -> None:
    """Enforce references, survive a power cut, and leave no deleted text in free pages."""
    _read_any_text(connection)
    connection.execute(f"PRAGMA busy_timeout = {_POLL_MS}")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA synchronous = FULL")
    connection.create_function("agentmem_follow", 2, follow, deterministic=True)
    deadline = time.monotonic() + lock_timeout_s
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchall()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))  # noqa: S311 - spreads writers, hides nothing
        else:
            return


def create_private(path: Path) -> None:
    """Create the file *path* for its owner alone; one that is there keeps its mode."""
    target = os.path.realpath(path)  # a link may lead to a file that is still to be made
    # What else stands in the way is SQLite's to say.
    with suppress(OSError):
        handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(handle, 0o600)  # whatever the umask is
        finally:
            os.close(handle)


def has_content(path: Path) -> bool:
    """Whether there is a file that is not empty."""
    return path.is_file() and path.stat().st_size > 0


def check_writable(path: Path) -> None:
    """
    Pass where *path*, and what SQLite keeps beside it, can be written.

    Raises:
        StoreError: opening it for writing would leave files behind that make it unwritable.
    """
    if not path.exists():
        return
    beside = [Path(f"{path}{suffix}") for suffix in ("-wal", "-shm")]
    has_both = all(one.exists() for one in beside)
    if not _may_write(path) or not (has_both or _may_write(path.parent)):
        raise StoreError(
            f"{path} cannot be written: check the permissions of the file and its folder, or open "
            "it with read_only=True"
        )


class ReadOnlyFile:
    """Opens a database file for reading, and leaves the folder as it was."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._copied: tuple[object, ...] = ()

    def connect(self) -> sqlite3.Connection:
        """
        Open a connection that reads what is committed now.

        Raises:
            DatabaseUrlError: there is no database.
        """
        if not has_content(self._path):
            raise DatabaseUrlError(f"there is no database {self._path}: check the path")
        connection = self._open()
        _read_any_text(connection)
        connection.execute(f"PRAGMA busy_timeout = {_POLL_MS}")
        connection.execute("PRAGMA query_only = ON")
        return connection

    def close(self) -> None:
        """Remove what was copied."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _open(self) -> sqlite3.Connection:
        path = self._path
        if _may_write(path) and _may_write(path.parent):
            # The last one who may write also removes what it has made.
            return sqlite3.connect(path, check_same_thread=False)
        log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
        if index.exists() and log.exists():
            return _by_uri(path, "mode=ro")
        if log.exists() and log.stat().st_size > 0:
            return sqlite3.connect(self._copied_with(log), check_same_thread=False)
        return _by_uri(path, "mode=ro&immutable=1")

    def _copied_with(self, log: Path) -> Path:
        """
        Copy the file and a log that is not open elsewhere, and return where the copy is.

        SQLite reads a log only with an index beside it, and that would have to be written there.
        """
        stamp = tuple((s.st_mtime_ns, s.st_size) for s in (self._path.stat(), log.stat()))
        if self._copy is None or stamp != self._copied:
            self.close()
            self._copy = tempfile.TemporaryDirectory(prefix="agentmem-")
            target = Path(self._copy.name) / "copy.db"
            shutil.copyfile(self._path, target)
            shutil.copyfile(log, f"{target}-wal")
            self._copied = stamp
        return Path(self._copy.name) / "copy.db"


def _by_uri(path: Path, options: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?{options}"
    return sqlite3.connect(uri, uri=True, check_same_thread=False)


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
