"""
Detects that an open SQLite database is no longer the file at its path.

A removed or replaced file accepts writes while it is open, and they are lost with its last
connection. So each write checks the file system before and after.
"""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event

from agentmem.errors import StoreError
from agentmem.machine.logs import Once, log

_log = logging.getLogger(__name__)

_SEEN = "agentmem_files"
_LOGS = ("-wal", "-shm")


class FileIdentity:
    """The identity of a database file, and of the log that each connection has open."""

    def __init__(self, path: str) -> None:
        self._path = path
        # A later change of the working directory affects relative paths here, but not in SQLite.
        self._absolute = str(Path(path).absolute())
        self._logs = tuple(self._absolute + suffix for suffix in _LOGS)
        self._file: tuple[int, int] | None = None
        self._is_new = Once()

    def watch(self, engine: Engine) -> None:
        """Reject new connections of *engine* if the path is another file."""
        event.listen(engine, "do_connect", self._before_connecting)
        event.listen(engine, "connect", self._after_connecting)

    def check(self, info: dict[str, Any]) -> None:
        """
        Raise if a connection's open file is not that at its path; *info* is the connection's.

        Raises:
            StoreError: the file or its write-ahead log was removed or replaced.
        """
        if _identity(self._absolute) != self._file:
            raise self._lost(self._path)
        seen = info.get(_SEEN)
        if seen is None:
            return
        for path, known in zip(self._logs, seen, strict=True):
            if known is not None and _identity(path) != known:
                raise self._lost(path)

    def learn(self, info: dict[str, Any]) -> None:
        """Record the log of a connection after a write: it exists while the connection is open."""
        if _SEEN not in info:
            info[_SEEN] = tuple(_identity(path) for path in self._logs)

    def _lost(self, path: str) -> StoreError:
        if self._is_new(path):
            line = "the open database file {path} was removed or replaced"
            log(_log, logging.ERROR, "database_file_lost", line, path=path)
        return StoreError(
            f"the file {path} was removed or replaced while the database was open: nothing more "
            "can be stored in it. Export from the open database, restore the file, then open it "
            "again"
        )

    def _before_connecting(self, *_given: object) -> None:
        """Prevent SQLite from creating an empty file in place of a removed one."""
        if self._file is not None and _identity(self._absolute) != self._file:
            raise self._lost(self._path)

    def _after_connecting(self, _connection: sqlite3.Connection, _record: object) -> None:
        found = _identity(self._absolute)
        if self._file is None:
            self._file = found


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - some microseconds of each append
    except OSError:
        return None
    return status.st_dev, status.st_ino
