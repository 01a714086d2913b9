"""IVF partitions (inverted lists): a query compares the closest ones only."""

import math
from typing import Final

import faiss
import numpy as np
import numpy.typing as npt

from agentmem.retrieval.rows.growable_array import Bools, Float32s

_SEED: Final = 1
_ROUNDS: Final = 8
_SAMPLE: Final = 40
"""Training vectors per partition."""


class IVFPartitions:
    """Centroids: (partitions, dimension). A vector belongs to the closest one."""

    def __init__(self, centres: Float32s) -> None:
        self._num = len(centres)
        self._centres = faiss.IndexFlatIP(centres.shape[1])
        self._centres.add(centres)

    @classmethod
    def of(cls, sample: Float32s, num_partitions: int) -> "IVFPartitions":
        """Train centroids on unit vectors, (n, dimension), by k-means with a fixed seed."""
        kmeans = faiss.Kmeans(
            sample.shape[1],
            num_partitions,
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
        """Return the partition of each vector: (n,)."""
        if len(vectors) == 0:
            return np.empty(0, np.int32)
        _, partitions = self._centres.search(vectors, 1)
        found: npt.NDArray[np.int32] = partitions[:, 0].astype(np.int32)
        return found

    def nearest(self, query: Float32s, share: float) -> Bools:
        """Return whether each partition is among the closest *share* of all."""
        num = min(self._num, max(1, round(share * self._num)))
        _, closest = self._centres.search(query.reshape(1, -1), num)
        chosen = np.zeros(self._num, np.bool_)
        chosen[closest[0]] = True
        return chosen


def num_partitions_for(num_vectors: int) -> int:
    """Return a number of partitions for which ranking them costs less than searching them."""
    return max(1, 2 * math.isqrt(num_vectors))


def sample_size(num_partitions: int) -> int:
    """Return the maximum number of training vectors."""
    return num_partitions * _SAMPLE
