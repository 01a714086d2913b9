"""Values that are worked out once, however often they are asked for."""

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Generic, TypeVar

V = TypeVar("V")


class Remembered(Generic[V]):
    """
    Calls *make* once for the same arguments, and remembers the last *maxsize* values.

    It looks for the very same objects first: to hash and compare long messages takes longer than
    most of what is asked for. The objects are held, so that no other one can have their identity.
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
        """Forget everything."""
        self._by_identity.clear()
        self._by_value.cache_clear()
