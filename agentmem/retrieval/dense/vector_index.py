"""
The vector index of one search scope.

The filter is applied before the comparison, so it never loses a hit, and the search is exact:
`benchmarks/bench_vectors.py` measures its cost.
"""

from collections.abc import Collection
from typing import Final, Protocol

import faiss
import numpy as np

from agentmem.errors import VectorError
from agentmem.retrieval.rows.growable_array import Bools, Float32s, GrowableArray, Int64s

_UNIT: Final = 1e-5
"""Tolerance of the squared norm of a unit vector."""


class VectorIndex(Protocol):
    """Scores rows by their vectors. Not thread-safe."""

    @property
    def kind(self) -> str:
        """The kind of search, for display."""
        ...

    @property
    def num_bytes(self) -> int:
        """Approximate bytes of memory."""
        ...

    @property
    def rows(self) -> Int64s:
        """The row of each vector: (n,)."""
        ...

    def __len__(self) -> int:
        """Return the number of vectors."""
        ...

    def add(self, rows: Int64s, vectors: Float32s) -> None:
        """
        Add *vectors*, (n, dimension), of *rows*, (n,); a row may have several.

        Raises:
            VectorError: one is invalid; none was added.
        """
        ...

    def remove(self, rows: Collection[int]) -> None:
        """Remove all vectors of *rows*; rows without one are ignored."""
        ...

    def scores(self, vector: Float32s, allowed: Bools) -> Float32s:
        """
        Compare the rows that are *allowed*, (rows,), with *vector*, (dimension,).

        Return the cosine of each row's best vector, (rows,): NaN where it has none, -inf where it
        is not allowed or was not reached by the database's search.

        Raises:
            VectorError: *vector* is invalid.
        """
        ...


class FaissIndex:
    """An in-memory `VectorIndex`. Equal vectors have equal scores, at any position."""

    kind = "flat"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._flat = faiss.IndexFlatIP(dimension)
        self._rows = GrowableArray(np.int64)

    @property
    def num_bytes(self) -> int:
        return len(self) * (4 * self.dimension + 12)

    @property
    def rows(self) -> Int64s:
        """The row of each vector: (n,)."""
        return self._rows.values

    def __len__(self) -> int:
        return len(self._rows)

    def vectors(self) -> Float32s:
        """Return a copy of the vectors: (n, dimension)."""
        found: Float32s = self._flat.reconstruct_n(0, len(self))
        return found

    def add(self, rows: Int64s, vectors: Float32s) -> None:
        unit = as_unit(vectors, self.dimension)
        assert len(rows) == len(unit), f"{len(rows)} rows for {len(unit)} vectors"
        if len(rows) == 0:
            return
        self._flat.add(unit)
        self._rows.extend(rows)

    def remove(self, rows: Collection[int]) -> None:
        gone = np.isin(self.rows, np.fromiter(rows, np.int64, len(rows)))
        num_gone = int(np.count_nonzero(gone))
        if not num_gone:
            return
        num_kept = len(self) - num_gone
        # Only as many vectors move as there are gaps, not all after a gap.
        gaps = np.flatnonzero(gone[:num_kept])
        last = num_kept + np.flatnonzero(~gone[num_kept:])
        if len(gaps):
            size = len(self) * self.dimension
            stored = faiss.rev_swig_ptr(self._flat.get_xb(), size).reshape(-1, self.dimension)
            stored[gaps] = stored[last]
        self._flat.remove_ids(faiss.IDSelectorRange(num_kept, len(self)))
        self._rows.fill(gaps, last, num_kept)

    def scores(self, vector: Float32s, allowed: Bools) -> Float32s:
        query = as_unit(vector.reshape(1, -1), self.dimension)[0]
        result = np.full(len(allowed), np.nan, np.float32)
        rows = self.rows
        result[rows] = -np.inf
        slots = np.flatnonzero(allowed[rows])
        if len(slots):
            # `ufunc.at`, since a row of several chunks occurs several times.
            np.maximum.at(result, rows[slots], self._compare(query, slots))
        return result

    def _compare(self, query: Float32s, slots: Int64s) -> Float32s:
        # One vector at a time: bit-identical at any position, unlike faiss's faster functions for
        # short vectors. For one query threads cost more than they gain.
        found = np.empty(len(slots), np.float32)
        pointer = faiss.swig_ptr
        num_threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        faiss.fvec_inner_products_by_idx(  # type: ignore[attr-defined]  # its stubs lack it
            pointer(found),
            pointer(query),
            self._flat.get_xb(),
            pointer(slots),
            self.dimension,
            1,
            len(slots),
        )
        faiss.omp_set_num_threads(num_threads)
        return found


def as_unit(vectors: Float32s, dimension: int) -> Float32s:
    """
    Return *vectors*, (n, dimension), normalized; unit vectors stay bit for bit.

    Raises:
        VectorError: one is of another dimension, not finite, or all zero.
    """
    given = np.ascontiguousarray(vectors, np.float32)
    if given.ndim != 2 or given.shape[1] != dimension:  # noqa: PLR2004 - a table
        raise VectorError(f"vectors must be of dimension {dimension}, got shape {given.shape}")
    squares = np.einsum("ij,ij->i", given, given, dtype=np.float64)
    if not np.isfinite(squares).all():
        raise VectorError("a vector has NaN or infinite values")
    if not squares.all():
        raise VectorError("a vector is all zero: it has no direction")
    is_off = np.abs(squares - 1) > _UNIT
    if is_off.any():
        given = given.copy()
        given[is_off] /= np.sqrt(squares[is_off, None])
    return given
