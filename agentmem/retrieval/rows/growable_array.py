"""Growable arrays."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]
Float64s = npt.NDArray[np.float64]
Float32s = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

Kind = TypeVar("Kind", bound=np.generic)

_FIRST_CAPACITY = 16


class GrowableArray(Generic[Kind]):
    """An array with appends in amortized constant time."""

    def __init__(self, dtype: type[Kind]) -> None:
        self._values: npt.NDArray[Kind] = np.zeros(_FIRST_CAPACITY, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> npt.NDArray[Kind]:
        """A view of the values; invalid after an `append` or `extend`."""
        return self._values[: self._size]

    def append(self, value: Any) -> None:
        if self._size == len(self._values):
            self._reserve(self._size + 1)
        self._values[self._size] = value
        self._size += 1

    def extend(self, values: Sequence[Any] | npt.NDArray[Any]) -> None:
        self._reserve(self._size + len(values))
        self._values[self._size : self._size + len(values)] = values
        self._size += len(values)

    def fill(self, gaps: Int64s, last: Int64s, size: int) -> None:
        """Move the values at *last* into the *gaps*, and truncate to *size*."""
        self._values[gaps] = self._values[last]
        self._size = size

    def _reserve(self, size: int) -> None:
        if size > len(self._values):
            # Doubling gives amortized constant cost per value.
            more = np.zeros(max(size, 2 * len(self._values)), self._values.dtype)
            more[: self._size] = self.values
            self._values = more
