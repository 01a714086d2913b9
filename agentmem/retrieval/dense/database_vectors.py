"""
Vector search in the database: only the rows with a vector are kept in memory.

With the interface of `VectorIndex`.
"""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np

from agentmem.protocols import RetrievalStore, SearchScope, VectorTable
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.message_vectors import MessageVectors
from agentmem.retrieval.dense.vector_index import as_unit
from agentmem.retrieval.rows.growable_array import Bools, Float32s, GrowableArray, Int64s
from agentmem.retrieval.rows.message_table import MessageTable
from agentmem.types import MessageId

_BYTES_OF_ROW: Final = 8
_MAX_FOUND: Final = 100_000
"""Maximum rows that one search returns."""


class DatabaseVectorIndex:
    """A `VectorIndex` over a table of the database, exact up to `_MAX_FOUND` rows."""

    kind = "in the database"

    def __init__(self, table: VectorTable, message_table: MessageTable, dimension: int) -> None:
        self._table = table
        self._catalog = message_table
        self._dimension = dimension
        self._rows = GrowableArray(np.int64)

    @property
    def num_bytes(self) -> int:
        return _BYTES_OF_ROW * len(self)

    @property
    def rows(self) -> Int64s:
        return self._rows.values

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, rows: Int64s, vectors: Float32s) -> None:
        """Record that *rows* have vectors in the table."""
        assert len(vectors) == 0, "vectors go into the table through the retrieval store"
        self._rows.extend(rows)

    def remove(self, rows: Collection[int]) -> None:
        kept = self.rows[~np.isin(self.rows, np.fromiter(rows, np.int64, len(rows)))]
        self._rows = GrowableArray(np.int64)
        self._rows.extend(kept)

    def scores(self, vector: Float32s, allowed: Bools) -> Float32s:
        query = as_unit(vector.reshape(1, -1), self._dimension)[0]
        result = np.full(len(allowed), np.nan, np.float32)
        result[self.rows] = -np.inf
        wanted = self._catalog.message_ids[self.rows[allowed[self.rows]]].tolist()
        found = self._table.search(query.astype("<f4").tobytes(), wanted, _MAX_FOUND)
        for message_id, score in found:
            row = self._catalog.row_of(message_id)
            assert row is not None, f"message {message_id} was found but has no row"
            result[row] = score
        return result


class DatabaseVectors(MessageVectors):
    """The rows of a message table with vectors in a table of the database."""

    def __init__(
        self,
        search_scope: SearchScope,
        retrieval_store: RetrievalStore,
        embedder: Embedder,
        *,
        table: VectorTable,
        message_table: MessageTable,
    ) -> None:
        super().__init__(search_scope, retrieval_store, embedder)
        self._table = table
        self.index = DatabaseVectorIndex(table, message_table, embedder.dimension)

    def _take(self, message_ids: Sequence[MessageId]) -> None:
        has_vector = self._table.fill(message_ids)
        rows = [self.missing.pop(one) for one in has_vector if has_vector[one]]
        for one in has_vector:
            self.missing.pop(one, None)
        self.index.add(np.array(rows, np.int64), np.empty((0, self._dimension), np.float32))


def vectors_of(
    search_scope: SearchScope,
    retrieval_store: RetrievalStore,
    embedder: Embedder,
    message_table: MessageTable,
) -> MessageVectors:
    """Return the vector index of *search_scope*: in the database if it supports vector search."""
    table = retrieval_store.table(embedder.fingerprint, embedder.dimension)
    if table is None:
        return MessageVectors(search_scope, retrieval_store, embedder)
    return DatabaseVectors(
        search_scope, retrieval_store, embedder, table=table, message_table=message_table
    )
