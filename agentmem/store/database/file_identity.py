"""
Whether a SQLite database still is the file at its path.

A file that was removed or replaced while it is open takes writes for as long as it is open, and
they are gone with its last connection. So each write asks the file system before and after it.
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
    """Remembers which file a database is, and which log each of its connections has open."""

    def __init__(self, path: str) -> None:
        self._path = path
        # A later change of the working directory leads a relative path elsewhere, but not SQLite.
        self._absolute = str(Path(path).absolute())
        self._logs = tuple(self._absolute + suffix for suffix in _LOGS)
        self._file: tuple[int, int] | None = None
        self._is_new = Once()

    def watch(self, engine: Engine) -> None:
        """Refuse new connections of *engine* where the path leads to another file."""
        event.listen(engine, "do_connect", self._before_connecting)
        event.listen(engine, "connect", self._after_connecting)

    def check(self, info: dict[str, Any]) -> None:
        """
        Raise if what a connection has open is not what its path leads to; *info* is its own.

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
        """Remember the log of a connection that has just written: it stays while that is open."""
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
        """Do not let SQLite make an empty file in the place of one that is gone."""
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
