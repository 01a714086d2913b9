"""LRU cache of the indexes of search scopes, loaded on demand."""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final

from agentmem.errors import AgentMemError, ConfigError
from agentmem.machine.forks import renew_in_child
from agentmem.machine.logs import log, nature
from agentmem.protocols import RetrievalStore, SearchScope
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.retrieval.index.message_index import MessageIndex
from agentmem.types import MessageId, Scope
from agentmem.types.checks import is_int
from agentmem.types.short_repr import ShortRepr

_SAVED_SHARE: Final = 10
"""A file is rewritten when a tenth of it has changed, to bound write amplification."""

_CLOSING_SHARE: Final = 50
_PAUSE_S: Final = 60.0
"""Delay before a retry, after a file could not be written."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallSettings(ShortRepr):
    """
    Limits of the cache and of index files.

    Args:
        max_bytes: maximum memory of all indexes together; the one in use may exceed it.
        save_after: minimum number of added or removed vectors before a file is written.

    Raises:
        ConfigError: one of them is not an integer of at least 1.
    """

    max_bytes: int = 512 << 20
    save_after: int = 256

    def __post_init__(self) -> None:
        for name in ("max_bytes", "save_after"):
            value = getattr(self, name)
            if not is_int(value) or value < 1:
                raise ConfigError(f"{name} must be an integer of at least 1, got {value!r:.80}")


class IndexCache:
    """Returns the index of each search scope. Thread-safe; each index has a separate lock."""

    def __init__(
        self,
        retrieval_store: RetrievalStore,
        embedder: Embedder | None,
        files: VectorFiles | None,
        settings: RecallSettings,
    ) -> None:
        self._make: Callable[[SearchScope], MessageIndex] = lambda search_scope: MessageIndex(
            search_scope, retrieval_store, embedder=embedder, files=files
        )
        self._files = files
        self._settings = settings
        self.file_error: str | None = None
        self.begin_anew()
        renew_in_child(self)

    def begin_anew(self) -> None:
        """Start without locks and indexes; another thread may have held them at a fork."""
        self._lock = threading.Lock()
        self._indexes: OrderedDict[SearchScope, MessageIndex] = OrderedDict()
        self._save_at = float("-inf")
        self._is_tidy = False

    def get(self, search_scope: SearchScope) -> MessageIndex:
        """Return the index of *search_scope*, which may not be up to date."""
        with self._lock:
            index = self._indexes.get(search_scope)
            if index is None:
                index = self._indexes[search_scope] = self._make(search_scope)
            self._indexes.move_to_end(search_scope)
            return index

    def trim(self) -> None:
        """Evict the least recently used indexes until the rest fits."""
        with self._lock:
            sizes = {search_scope: index.num_bytes for search_scope, index in self._indexes.items()}
            total = sum(sizes.values())
            for search_scope, size in sizes.items():
                if total <= self._settings.max_bytes or len(self._indexes) == 1:
                    break
                del self._indexes[search_scope]
                total -= size

    def forget_all(self) -> None:
        """Release all memory."""
        with self._lock:
            self._indexes.clear()

    def renew(self, search_scope: SearchScope) -> MessageIndex:
        """
        Return a new index of *search_scope*, without an earlier one or its file.

        Raises:
            IndexFileError: the file cannot be removed.
        """
        with self._lock:
            self._indexes.pop(search_scope, None)
        if self._files is not None:
            with self._files.turn():
                self._files.remove(search_scope)
        return self.get(search_scope)

    def forget(self, scope: Scope, message_ids: Collection[MessageId]) -> None:
        """
        Remove these messages from memory and from files.

        Raises:
            IndexFileError: a file cannot be removed.
        """
        if not message_ids:
            return
        concerned = [index for index in self._loaded() if index.search_scope.scope == scope]
        for index in concerned:
            with index.lock:
                index.remove(message_ids)
        if self._files is None or not self._files.has_files():
            return
        with self._files.turn():
            has_removed = self._files.remove_with(scope, message_ids)
        for index in concerned if has_removed else ():
            with index.lock:
                index.count_as_unsaved()

    def maintain(self, *, closing: bool = False) -> None:
        """
        Save indexes with enough changes.

        A failed write does not raise: it is logged and shown in the status, and the index in memory
        remains in use.
        """
        if self._files is not None and not self._is_tidy:
            self._is_tidy = True
            self._try(self._files.tidy)
        for index in self._loaded():
            if self.is_due(index, closing=closing):
                self._try(index.save)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except AgentMemError as error:
            self._save_at = time.monotonic() + _PAUSE_S
            if self.file_error != str(error):
                line = "an index file cannot be used, the index is in memory only: {error}"
                log(_log, logging.WARNING, "index_file_failed", line, error=nature(error))
            self.file_error = str(error)
        else:
            self.file_error = None

    def num_file_bytes(self, search_scope: SearchScope) -> int | None:
        """Return the size of the file of *search_scope*; None without one."""
        return None if self._files is None else self._files.num_bytes(search_scope)

    def _loaded(self) -> list[MessageIndex]:
        with self._lock:
            return list(self._indexes.values())

    def is_due(self, index: MessageIndex, *, closing: bool = False) -> bool:
        """Return whether the file of *index* should be written now."""
        if index.vectors is None or self._files is None:
            return False
        if not closing and time.monotonic() < self._save_at:
            return False
        if index.vectors.has_leftovers:
            return True
        num = index.vectors.num_changes
        size = len(index.vectors.index)
        if closing:
            return num > 0 and num * _CLOSING_SHARE >= size
        return num >= self._settings.save_after and num * _SAVED_SHARE >= size
