"""Divides a large set of vectors into cells of close ones, so that a query looks at a few."""

import math
from typing import Final

import faiss
import numpy as np
import numpy.typing as npt

from agentmem.retrieval.columns import Bools, Float32s

_SEED: Final = 1
_ROUNDS: Final = 8
_SAMPLE: Final = 40
"""Vectors for each cell that its centre is found from."""


class Cells:
    """The centres of cells: (cells, dimension). A vector lies in the cell of the closest one."""

    def __init__(self, centres: Float32s) -> None:
        self._num = len(centres)
        self._centres = faiss.IndexFlatIP(centres.shape[1])
        self._centres.add(centres)

    @classmethod
    def of(cls, sample: Float32s, num_cells: int) -> "Cells":
        """Find *num_cells* centres from unit vectors: (n, dimension). The same ones each time."""
        kmeans = faiss.Kmeans(
            sample.shape[1],
            num_cells,
            niter=_ROUNDS,
            spherical=True,
            seed=_SEED,
            min_points_per_centroid=1,
            max_points_per_centroid=_SAMPLE,
        )
        kmeans.train(sample)
        assert kmeans.centroids is not None, "trained without a centre"
        return cls(kmeans.centroids)

    def __len__(self) -> int:
        return self._num

    def assign(self, vectors: Float32s) -> npt.NDArray[np.int32]:
        """Give the cell of each vector: (n,)."""
        if len(vectors) == 0:
            return np.empty(0, np.int32)
        _, cells = self._centres.search(vectors, 1)
        found: npt.NDArray[np.int32] = cells[:, 0].astype(np.int32)
        return found

    def nearest(self, query: Float32s, share: float) -> Bools:
        """Tell for each cell whether it is among the closest ones, which are *share* of all."""
        num = min(self._num, max(1, round(share * self._num)))
        _, closest = self._centres.search(query.reshape(1, -1), num)
        chosen = np.zeros(self._num, np.bool_)
        chosen[closest[0]] = True
        return chosen


def num_cells_for(num_vectors: int) -> int:
    """Give a number of cells for which choosing cells costs less than looking into them."""
    return max(1, 2 * math.isqrt(num_vectors))


def sample_size(num_cells: int) -> int:
    """Tell how many vectors the centres of so many cells are found from at most."""
    return num_cells * _SAMPLE
