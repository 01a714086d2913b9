"""
Index files of vectors, written atomically and validated when read.

A file is a cache of the store, for a faster start. It has vectors and message ids, but no text;
its name is a hash. The caller validates each vector by the content hash of its message.
"""

import hashlib
import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

import numpy as np

from agentmem.errors import DamagedIndexError, IndexFileError
from agentmem.machine import file_lock
from agentmem.machine.atomic_file import replace_file, sync_folder
from agentmem.protocols import INDEX_LOCK, INDEX_PART, INDEX_SUFFIX, SearchScope
from agentmem.retrieval.dense.vector_file_format import (
    Header,
    SavedVectors,
    decode,
    decode_header,
    encode,
)
from agentmem.retrieval.rows.growable_array import Int64s
from agentmem.types import MessageId, Scope

_PATIENCE_S: Final = 60.0
_MAX_HEADER_BYTES: Final = 1 << 16


class VectorFiles:
    """
    One file per search scope in *folder*, with the vectors of one embedder.

    A save replaces the file atomically. Any number of processes may load and save; a killed one
    leaves at most a temporary file, which the next one removes.
    """

    def __init__(self, folder: Path, fingerprint: str) -> None:
        self._folder = folder
        self._fingerprint = fingerprint

    def load(self, search_scope: SearchScope) -> tuple[int, SavedVectors] | None:
        """
        Read the file of *search_scope*: its generation and its vectors; None without a file.

        Raises:
            DamagedIndexError: it is corrupt, or of another search scope or embedder.
            IndexFileError: it cannot be read.
        """
        path = self._path(search_scope)
        try:
            header, saved = decode(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise IndexFileError(f"cannot read the index file {path}: {error}") from error
        except DamagedIndexError as error:
            raise DamagedIndexError(
                f"the index file {path} is corrupt and will be rebuilt: {error}"
            ) from error
        for name, value in self._identity(search_scope).items():
            if header.get(name) != value:
                raise DamagedIndexError(
                    f"the index file {path} has another {name}, and will be rebuilt: "
                    f"{header.get(name)!r:.200}"
                )
        return _generation(header), saved

    @contextmanager
    def turn(self) -> Iterator[None]:
        """
        Hold the file lock of the folder: no other process saves or removes during the block.

        The holder sees all deletions from the store before the lock was acquired, so that no
        process saves vectors that another one has just removed.

        Raises:
            IndexFileError: the folder cannot be written, or the lock timed out.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = (self._folder / INDEX_LOCK).open("ab")
        except OSError as error:
            raise IndexFileError(f"cannot write to {self._folder}: {error}") from error
        with lock:
            _wait_for(lock)
            try:
                yield
            finally:
                file_lock.unlock(lock)

    def save(self, search_scope: SearchScope, saved: SavedVectors) -> int:
        """
        Replace the file by *saved*, within a `turn`; return its generation.

        Raises:
            IndexFileError: it cannot be written; the old file is unchanged.
        """
        path = self._path(search_scope)
        generation = self._current_generation(path) + 1
        header = self._identity(search_scope) | {"generation": generation}
        try:
            self._remove_unfinished()
            with replace_file(path, prefix=f"{path.stem}.", suffix=INDEX_PART) as file:
                for piece in encode(header, saved):
                    file.write(piece)
            sync_folder(self._folder)
        except OSError as error:
            raise IndexFileError(f"cannot write the index file {path}: {error}") from error
        return generation

    def remove(self, search_scope: SearchScope) -> None:
        """
        Remove the file of *search_scope*, if it exists, within a `turn`.

        Raises:
            IndexFileError: it cannot be removed.
        """
        _unlink(self._path(search_scope))

    def remove_with(self, scope: Scope, message_ids: Collection[MessageId]) -> bool:
        """
        Remove each file of *scope*, of any embedder, with one of *message_ids*.

        Unreadable files are removed too. Return whether any was removed. Call within a `turn`.

        Raises:
            IndexFileError: one cannot be removed.
        """
        self._remove_unfinished()
        has_removed = False
        unwanted = np.fromiter(message_ids, np.int64, len(message_ids))
        for path in sorted(self._folder.glob(f"{_digest(scope)}.*{INDEX_SUFFIX}")):
            if _has_any(path, unwanted):
                _unlink(path)
                has_removed = True
        if has_removed:
            sync_folder(self._folder)
        return has_removed

    def tidy(self) -> None:
        """
        Remove temporary files of killed processes.

        Raises:
            IndexFileError: one cannot be removed.
        """
        if self.has_files():
            with self.turn():
                self._remove_unfinished()

    def has_files(self) -> bool:
        """Return whether there are files that may have deleted messages."""
        return self._folder.is_dir()

    def num_bytes(self, search_scope: SearchScope) -> int | None:
        """Return the size of the file of *search_scope*; None without one."""
        try:
            return self._path(search_scope).stat().st_size
        except OSError:
            return None

    def _remove_unfinished(self) -> None:
        """Remove temporary files of killed processes; this process holds the lock."""
        for path in self._folder.glob(f"*{INDEX_PART}"):
            _unlink(path)

    def _path(self, search_scope: SearchScope) -> Path:
        place = "user" if search_scope.session_id is None else f"session-{search_scope.session_id}"
        embedder = hashlib.sha256(self._fingerprint.encode()).hexdigest()[:16]
        return self._folder / f"{_digest(search_scope.scope)}.{place}.{embedder}{INDEX_SUFFIX}"

    def _identity(self, search_scope: SearchScope) -> dict[str, str | int | None]:
        return {
            "fingerprint": self._fingerprint,
            "scope": _digest(search_scope.scope),
            "session": search_scope.session_id,
        }

    @staticmethod
    def _current_generation(path: Path) -> int:
        try:
            with path.open("rb") as file:
                header, _ = decode_header(file.read(_MAX_HEADER_BYTES))
        except (OSError, DamagedIndexError):
            return 0
        return _generation(header)


def _has_any(path: Path, message_ids: Int64s) -> bool:
    """Return whether a file has one of *message_ids*, or is unreadable."""
    try:
        _, saved = decode(path.read_bytes())
    except (OSError, DamagedIndexError):
        return True
    return bool(np.isin(saved.message_ids, message_ids).any())


def _generation(header: Header) -> int:
    generation = header.get("generation")
    return generation if isinstance(generation, int) else 0


def _digest(scope: Scope) -> str:
    names = json.dumps([scope.namespace, scope.user]).encode()
    return hashlib.sha256(names).hexdigest()[:32]


def _wait_for(lock: IO[bytes]) -> None:
    try:
        file_lock.lock(lock, timeout_s=_PATIENCE_S)
    except TimeoutError as error:
        raise IndexFileError(str(error)) from error
    except OSError as error:
        raise IndexFileError(f"cannot lock {lock.name}: {error}") from error


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise IndexFileError(f"cannot remove the index file {path}: {error}") from error
