"""A lock with two priorities."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PriorityLock:
    """A lock that urgent callers acquire before all other waiters."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._is_taken = False
        self._num_urgent = 0

    @contextmanager
    def acquire(self, *, is_urgent: bool = False) -> Iterator[None]:
        """Hold the lock in this block; urgent callers have precedence."""
        with self._changed:
            self._num_urgent += is_urgent
            try:
                self._changed.wait_for(
                    lambda: not self._is_taken and (is_urgent or not self._num_urgent)
                )
            finally:
                self._num_urgent -= is_urgent
            self._is_taken = True
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()
