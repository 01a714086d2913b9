"""Wakes the threads and event loops that wait for one request."""

from collections.abc import Callable
from itertools import count


class Signal:
    """Callbacks of the waiters of one request. They must be quick and never raise."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._keys = count(1)

    def add(self, callback: Callable[[], object]) -> int:
        """Call *callback* at each `set`; return the key to `remove` it by."""
        key = next(self._keys)
        self._callbacks[key] = callback
        return key

    def remove(self, key: int) -> None:
        """Call it no more; a key that is unknown is ignored."""
        self._callbacks.pop(key, None)

    def set(self) -> None:
        """Wake all waiters."""
        for callback in list(self._callbacks.values()):
            callback()
