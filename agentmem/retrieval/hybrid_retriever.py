"""
The hybrid retriever: lexical and dense indexes over a retrieval store of messages.

All indexes are caches that can be rebuilt; the store is the source of truth. Whatever else fails,
a search finds messages that were committed before it by their words.
"""

import logging
from collections.abc import Collection, Sequence
from typing import Final, Self

import numpy as np

from agentmem.errors import RetrieverClosedError
from agentmem.machine.logs import log, nature
from agentmem.protocols import Hit, IndexStatus, OnIndexProgress, Query, RetrievalStore, SearchScope
from agentmem.retrieval.dense.embed_messages import embed_messages
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.embedding_worker import PAGE, EmbeddingWorker
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.retrieval.dense.vector_index import as_unit
from agentmem.retrieval.index.index_cache import IndexCache, RecallSettings
from agentmem.retrieval.index.message_index import MessageIndex
from agentmem.retrieval.rows.growable_array import Float32s
from agentmem.types import IndexHealth, MessageId, Scope
from agentmem.types.short_repr import short_repr

_log: Final = logging.getLogger(__name__)


class HybridRetriever:
    """
    A `protocols.Retriever`: hybrid search, or lexical search without an *embedder*.

    Args:
        embedder: embeds messages and queries; None for lexical search only.
        settings: limits of memory, and when index files are written.
    """

    def __init__(
        self, embedder: Embedder | None = None, *, settings: RecallSettings | None = None
    ) -> None:
        self._embedder = embedder
        self._settings = settings or RecallSettings()

    def __repr__(self) -> str:
        return short_repr("HybridRetriever", _fingerprint(self._embedder))

    @classmethod
    def load(cls, name: str | None = None, *, device: str = "auto") -> Self:
        """
        Load an embedding model by name or from a folder, all-MiniLM-L6-v2 by default.

        Raises:
            ModelLoadError: the model does not exist or cannot be read.
            ConfigError: the device does not exist.
        """
        from agentmem.retrieval.dense.sentence_embedder import (  # noqa: PLC0415 - loads torch
            DEFAULT_EMBEDDER,
            SentenceEmbedder,
        )

        return cls(SentenceEmbedder.load(name or DEFAULT_EMBEDDER, device=device))

    def open_index(self, retrieval_store: RetrievalStore) -> "HybridSearchIndex":
        """Open a search index over *retrieval_store*."""
        return HybridSearchIndex(retrieval_store, self._embedder, self._settings)


class HybridSearchIndex:
    """
    A `protocols.SearchIndex`. Thread-safe, and usable in a forked process.

    Lazy: nothing is read, and no thread started, before the first search or message.
    """

    def __init__(
        self, retrieval_store: RetrievalStore, embedder: Embedder | None, settings: RecallSettings
    ) -> None:
        self._retrieval_store = retrieval_store
        self._embedder = embedder
        files = None
        if retrieval_store.folder is not None:
            # Also without an embedder: files of an earlier one may have the deleted messages.
            fingerprint = "" if embedder is None else embedder.fingerprint
            files = VectorFiles(retrieval_store.folder, fingerprint)
        self._library = IndexCache(retrieval_store, embedder, files, settings)
        self._worker: EmbeddingWorker | None = None
        if embedder is not None:
            self._worker = EmbeddingWorker(retrieval_store, embedder, self._library.maintain)
        self._query_error: str | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return short_repr("HybridSearchIndex", _fingerprint(self._embedder))

    def search(self, query: Query) -> tuple[Hit, ...]:
        """
        Return matching messages, best first, without deleted ones.

        Messages committed before the call are searched by words at least, and by meaning once
        they are embedded.

        Raises:
            RetrieverClosedError: this is closed.
            StoreError: the retrieval store cannot be read.
        """
        self._refuse_if_closed()
        if query.limit < 1 or not query.text.strip():
            return ()
        index = self._library.get(query.search_scope)
        with index.lock:
            self._catch_up(index)
            text = index.query_text(query.text) if index.has_vectors else None
            is_behind = len(index.pending) > 0
        vector = self._embed_query(text or query.text) if text is not None else None
        with index.lock:
            hits = index.find(query, vector)
        self._library.trim()
        if self._worker is not None:
            if is_behind:
                self._worker.wake_if_idle()
            if self._library.is_due(index):
                self._worker.wake()
        return tuple(hits)

    def added(self) -> None:
        """Notify of a commit: new messages are embedded in the background."""
        if self._worker is not None:
            self._worker.wake()

    def forget(self, scope: Scope, message_ids: Collection[MessageId]) -> None:
        """
        Remove deleted messages from memory and from files.

        Raises:
            IndexFileError: a file with one of them cannot be removed.
        """
        self._library.forget(scope, message_ids)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all messages are embedded; return whether they are."""
        return True if self._worker is None else self._worker.wait(timeout_s)

    def close(self) -> None:
        """Stop background work, save, and release memory. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._worker is not None:
            self._worker.close()
        self._library.maintain(closing=True)
        self._library.forget_all()

    def health(self) -> IndexHealth:
        """Return the health of the background work; without an embedder there is none."""
        if self._worker is None:
            return IndexHealth(is_closed=self._is_closed)
        return self._worker.health()

    def status(self, search_scope: SearchScope) -> IndexStatus:
        """
        Return the current index status of *search_scope*.

        Raises:
            RetrieverClosedError: this is closed.
            StoreError: the retrieval store cannot be read.
        """
        self._refuse_if_closed()
        index = self._library.get(search_scope)
        with index.lock:
            self._catch_up(index)
            vectors = index.vectors
            status = IndexStatus(
                num_messages=index.message_table.num_alive,
                num_embedded=index.num_embedded,
                num_pending=len(index.pending),
                dense_unavailable_reason=self._why_lexical(index),
                fingerprint=None if self._embedder is None else self._embedder.fingerprint,
                kind="none" if vectors is None else vectors.index.kind,
                num_bytes=index.num_bytes,
                generation=None if vectors is None else vectors.generation,
                file_bytes=self._library.num_file_bytes(search_scope),
                last_error=self._last_error(index),
            )
        self._library.trim()
        return status

    def rebuild(
        self, search_scope: SearchScope, on_progress: OnIndexProgress | None = None
    ) -> IndexStatus:
        """
        Rebuild the index of *search_scope*, file included, and embed messages without a vector.

        Vectors in the retrieval store are reused.

        Raises:
            RetrieverClosedError: this is closed.
            IndexFileError: the file cannot be replaced.
            StoreError: the retrieval store cannot be read or written.
        """
        self._refuse_if_closed()
        tell = on_progress or _no_progress
        index = self._library.renew(search_scope)
        with index.lock:
            index.catch_up(lambda done, total: tell("read", done, total))
            pending = index.pending
        for start in range(0, len(pending), PAGE):
            self._embed(search_scope, pending[start : start + PAGE])
            tell("embedded", min(start + PAGE, len(pending)), len(pending))
        with index.lock:
            index.catch_up(even_if_many=True)
        index.save()
        return self.status(search_scope)

    def _catch_up(self, index: MessageIndex) -> None:
        num_rounds = 0 if self._worker is None else self._worker.num_rounds
        index.catch_up(even_if_many=index.num_rounds != num_rounds)
        index.num_rounds = num_rounds

    def _embed(self, search_scope: SearchScope, message_ids: Sequence[MessageId]) -> None:
        assert self._embedder is not None, "something is pending without an embedder"
        messages = self._retrieval_store.get(search_scope, message_ids)
        embeddings = embed_messages(messages, self._embedder, self._refuse_if_closed)
        self._retrieval_store.add_embeddings(self._embedder.fingerprint, embeddings)

    def _embed_query(self, text: str) -> Float32s | None:
        assert self._embedder is not None, "something is embedded without an embedder"
        try:
            given = np.asarray(self._embedder.embed_query(text), np.float32)
            vector = as_unit(given[None], self._embedder.dimension)[0]
        except Exception as error:  # noqa: BLE001 - a model may raise anything; words still find
            self._query_error = f"{type(error).__name__}: {error}"
            line = "a query could not be embedded, falling back to lexical search: {error}"
            log(_log, logging.WARNING, "question_not_embedded", line, error=nature(error))
            return None
        self._query_error = None
        return np.asarray(vector)

    def _why_lexical(self, index: MessageIndex) -> str | None:
        if self._embedder is None:
            return "no embedder is configured"
        if self._query_error is not None:
            return f"the last query could not be embedded: {self._query_error}"
        if index.pending and not index.has_vectors:
            return f"none of {len(index.pending)} messages is embedded yet"
        return None

    def _last_error(self, index: MessageIndex) -> str | None:
        found = (
            None if self._worker is None else self._worker.last_error,
            self._query_error,
            None if index.vectors is None else index.vectors.complaint,
            self._library.file_error,
        )
        return next((error for error in found if error is not None), None)

    def _refuse_if_closed(self) -> None:
        if self._is_closed:
            raise RetrieverClosedError("this retriever was closed: open the memory again")


def _fingerprint(embedder: Embedder | None) -> str | None:
    return None if embedder is None else embedder.fingerprint


def _no_progress(_what: str, _done: int, _total: int) -> None:
    pass
