"""A memoization cache keyed by object identity first, then by value."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """
    Calls *make* once for equal arguments, and caches the last *maxsize* values.

    It looks up object identity first: hashing and comparing long messages takes longer than most
    cached calls. The objects are referenced, so that their ids are not reused.
    """

    def __init__(self, make: Callable[..., V], maxsize: int) -> None:
        self._maxsize = maxsize
        self._by_value = lru_cache(maxsize=maxsize)(make)
        self._by_identity: dict[tuple[int, ...], tuple[tuple[Hashable, ...], V]] = {}

    def __call__(self, *args: Hashable) -> V:
        key = tuple(map(id, args))
        known = self._by_identity.get(key)
        if known is not None:
            return known[1]
        value = self._by_value(*args)
        if len(self._by_identity) >= self._maxsize:
            self._by_identity.clear()
        self._by_identity[key] = (args, value)
        return value

    def __len__(self) -> int:
        return max(len(self._by_identity), self._by_value.cache_info().currsize)

    def clear(self) -> None:
        """Clear the cache."""
        self._by_identity.clear()
        self._by_value.cache_clear()
