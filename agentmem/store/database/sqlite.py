"""
SQLite connections: private files, and read-only access without side effects.

A reader of a write-ahead log creates files beside the database, which a process without write
permission cannot remove, and which block writers. So each new connection chooses how to read by the
files beside the database.
"""

import os
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
from agentmem.machine.backoff import back_off
from agentmem.store.database.hashing import follow

_POLL_MS: Final = 100


def _read_any_text(connection: sqlite3.Connection) -> None:
    """Decode invalid UTF-8 to a text that is never stored, so that a read does not fail."""
    connection.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")


def set_up(connection: sqlite3.Connection, lock_timeout_s: float) -> None:
    """Enforce foreign keys, sync on commit, and zero deleted content (secure_delete)."""
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
            back_off(0, base_s=0.02, max_s=0.02)
        else:
            return


def create_private(path: Path) -> None:
    """Create the file *path* with mode 0600; an existing one keeps its mode."""
    target = os.path.realpath(path)  # a link may point to a missing file
    # Other obstacles are reported by SQLite.
    with suppress(OSError):
        handle = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.close(handle)
        Path(target).chmod(0o600)  # independent of the umask


def has_content(path: Path) -> bool:
    """Whether the file exists and is not empty."""
    return path.is_file() and path.stat().st_size > 0


def check_writable(path: Path) -> None:
    """
    Check that *path*, and SQLite's files beside it, can be written.

    Raises:
        StoreError: opening it for writing would leave files that make it unwritable.
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
    """Opens a database file read-only, without changes to the folder."""

    def __init__(self, path: Path) -> None:
        self._path = Path(os.path.realpath(path))
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._copied: tuple[object, ...] = ()

    def connect(self) -> sqlite3.Connection:
        """
        Open a connection that reads the committed state.

        Raises:
            DatabaseUrlError: the database does not exist.
        """
        if not has_content(self._path):
            raise DatabaseUrlError(f"there is no database {self._path}: check the path")
        connection = self._open()
        _read_any_text(connection)
        connection.execute(f"PRAGMA busy_timeout = {_POLL_MS}")
        connection.execute("PRAGMA query_only = ON")
        return connection

    def close(self) -> None:
        """Remove the copies."""
        if self._copy is not None:
            self._copy.cleanup()
            self._copy = None

    def _open(self) -> sqlite3.Connection:
        path = self._path
        if _may_write(path) and _may_write(path.parent):
            # The last connection with write access also removes its files.
            return sqlite3.connect(path, check_same_thread=False)
        log, index = Path(f"{path}-wal"), Path(f"{path}-shm")
        if index.exists() and log.exists():
            return _by_uri(path, "mode=ro")
        if log.exists() and log.stat().st_size > 0:
            return sqlite3.connect(self._copied_with(log), check_same_thread=False)
        return _by_uri(path, "mode=ro&immutable=1")

    def _copied_with(self, log: Path) -> Path:
        """
        Copy the file and a log that no process has open; return the path of the copy.

        SQLite reads a log only with an index file beside it, which would have to be written there.
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
