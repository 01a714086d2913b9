"""
The vectors of one search scope: valid ones from its file, the others from the retrieval store.

Missing vectors are requested again, since another process may have embedded the messages.
"""

import logging
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from agentmem.errors import DamagedIndexError, IndexFileError, VectorError
from agentmem.machine.logs import log
from agentmem.protocols import RetrievalStore, SearchScope
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.vector_file_format import ContentHashes, SavedVectors
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.retrieval.dense.vector_index import FaissIndex, VectorIndex
from agentmem.retrieval.rows.growable_array import Bools, Float32s
from agentmem.retrieval.rows.message_table import MessageTable
from agentmem.types import MessageId

_PAGE: Final = 1000
_FEW: Final = 2000
"""Maximum missing vectors that each search requests; more are requested less often."""

_REST: Final = 20
"""Minimum ratio of the pause to the duration of a large request."""

_log = logging.getLogger(__name__)


class MessageVectors:
    """The vectors of the rows of one `MessageTable`. Not thread-safe."""

    def __init__(
        self, search_scope: SearchScope, retrieval_store: RetrievalStore, embedder: Embedder
    ) -> None:
        self._search_scope = search_scope
        self._retrieval_store = retrieval_store
        self._fingerprint = embedder.fingerprint
        self._dimension = embedder.dimension
        self.index: VectorIndex = FaissIndex(embedder.dimension)
        self.missing: dict[MessageId, int] = {}
        """The row of each message without a vector."""
        self.num_changes = 0
        """Vectors added or removed since the file was read or written."""
        self.has_leftovers = False
        """Whether the file may have vectors of deleted messages."""
        self.generation: int | None = None
        """Generation of the file that was last read or written."""
        self.complaint: str | None = None
        """The last problem with the file or with a stored vector."""
        self._rest_until = 0.0

    def add(self, message_ids: Sequence[MessageId], rows: range) -> None:
        """Add rows without a vector."""
        self.missing.update(zip(message_ids, rows, strict=True))

    def remove(self, message_ids: Sequence[MessageId], rows: Sequence[int]) -> None:
        """Remove the vectors of *rows*."""
        for message_id in message_ids:
            self.missing.pop(message_id, None)
        before = len(self.index)
        self.index.remove(rows)
        self.num_changes += before - len(self.index)

    def load(
        self, files: VectorFiles, message_table: MessageTable, content_hashes: ContentHashes
    ) -> None:
        """Load the vectors from the file whose messages have an unchanged content hash."""
        try:
            found = files.load(self._search_scope)
            if found is not None:
                self.generation, saved = found
                self._take_saved(saved, message_table, content_hashes)
        except (DamagedIndexError, IndexFileError, VectorError) as error:
            self._complain(f"{error}; its vectors are read from the database")

    def catch_up(self, *, even_if_many: bool = False) -> None:
        """Load new vectors from the retrieval store."""
        started = time.monotonic()
        is_few = len(self.missing) <= _FEW
        if not self.missing or not (is_few or even_if_many or started >= self._rest_until):
            return
        waiting = list(self.missing)
        for start in range(0, len(waiting), _PAGE):
            page = waiting[start : start + _PAGE]
            self._take(page)
        self._rest_until = time.monotonic() + _REST * (time.monotonic() - started)

    def scores(self, query: Float32s, allowed: Bools) -> Float32s | None:
        """Return the score of each row for *query*: (rows,); None without any vector."""
        return self.index.scores(query, allowed) if len(self.index) else None

    def snapshot(self, message_table: MessageTable, content_hashes: ContentHashes) -> SavedVectors:
        """Return a copy of the state to save."""
        assert isinstance(self.index, FaissIndex), "only what is in memory is saved"
        rows = self.index.rows
        return SavedVectors(
            message_ids=message_table.message_ids[rows],
            content_hashes=content_hashes[rows],
            vectors=self.index.vectors(),
        )

    def _take_saved(
        self, saved: SavedVectors, message_table: MessageTable, content_hashes: ContentHashes
    ) -> None:
        nowhere = len(message_table)
        rows = np.fromiter(
            (self.missing.get(MessageId(i), nowhere) for i in saved.message_ids.tolist()),
            np.int64,
            len(saved.message_ids),
        )
        is_held = rows < nowhere
        is_held[is_held] = content_hashes[rows[is_held]] == saved.content_hashes[is_held]
        self.index.add(rows[is_held], saved.vectors[is_held])
        for message_id in set(saved.message_ids[is_held].tolist()):
            del self.missing[message_id]
        self.has_leftovers |= not is_held.all()

    def _take(self, message_ids: Sequence[MessageId]) -> None:
        """Load the vectors of *message_ids*."""
        embeddings = self._retrieval_store.embeddings(self._fingerprint, message_ids)
        rows: list[int] = []
        vectors: list[Float32s] = []
        for one in embeddings:
            if one.message_id not in self.missing:
                continue
            vector = np.frombuffer(one.vector, "<f4") if len(one.vector) % 4 == 0 else None
            if vector is None or (len(vector) not in (0, self._dimension)) or not _points(vector):
                self._complain(
                    f"the stored vector of message {one.message_id} is invalid: the message is "
                    "searched by its words only"
                )
            elif len(vector):
                rows.append(self.missing[one.message_id])
                vectors.append(vector)
        for one in embeddings:
            self.missing.pop(one.message_id, None)
        if rows:
            self.index.add(np.array(rows, np.int64), np.stack(vectors))
            self.num_changes += len(rows)

    def _complain(self, what: str) -> None:
        log(_log, logging.WARNING, "vectors_unusable", "{reason}", reason=what)
        self.complaint = what


def _points(vector: Float32s) -> bool:
    """Return whether a vector has a direction; an empty one counts as having one."""
    length = float(np.dot(vector.astype(np.float64), vector))
    return len(vector) == 0 or (np.isfinite(length) and length > 0)
