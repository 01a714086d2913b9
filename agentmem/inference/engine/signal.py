"""Wakes threads and event loops that wait for a request."""

from collections.abc import Callable
from itertools import count


class Signal:
    """The callbacks of a request's waiters. They must not block or raise."""

    def __init__(self) -> None:
        self._callbacks: dict[int, Callable[[], object]] = {}
        self._keys = count(1)

    def add(self, callback: Callable[[], object]) -> int:
        """Register *callback*, called at each `set`; return its key for `remove`."""
        key = next(self._keys)
        self._callbacks[key] = callback
        return key

    def remove(self, key: int) -> None:
        """Unregister a callback; an unknown key is ignored."""
        self._callbacks.pop(key, None)

    def set(self) -> None:
        """Wake all waiters."""
        for callback in list(self._callbacks.values()):
            callback()
