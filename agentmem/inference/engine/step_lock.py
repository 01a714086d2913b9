"""
The lock of engine steps, which is recovered if its holder dies.

A thread can die between any two instructions: by an interrupt, a debugger, an asynchronous
exception of another thread. ``try`` and ``finally`` cover nearly all cases; the rest would leave
the lock held forever, a deadlock. So a thread that has waited long checks whether any thread still
holds the lock, and replaces it if none does.
"""

import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

T = TypeVar("T")

LOOK_AGAIN_S = 1.0
"""Seconds after which a waiting thread checks whether the holder is alive."""


class StepLock:
    """A lock that is held only inside `run`, by a thread with that frame on its stack."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._num_held = 0
        self._suspect: tuple[threading.Lock, int, float] | None = None

    def run(self, work: Callable[[], T], *, wait: bool) -> tuple[bool, T | None]:
        """
        Run *work* with the lock held.

        Return whether it ran, and its result. Without *wait* it does not run while another thread
        holds the lock.
        """
        held = False
        lock = self._lock
        try:
            while not held:
                held = lock.acquire(timeout=LOOK_AGAIN_S) if wait else lock.acquire(blocking=False)
                if not held and not wait:
                    return False, None
                if not held:
                    self.replace_if_abandoned()
                if lock is not self._lock:
                    # The lock was replaced: the acquired one excludes no other thread.
                    held, lock = False, self._lock
            self._num_held += 1
            return True, work()
        finally:
            if held:
                lock.release()

    def replace_if_abandoned(self) -> None:
        """
        Replace the lock if it is held and no thread holds it.

        A thread registers as the holder shortly after acquiring the lock, so the lock is replaced
        only when found abandoned twice, without use in between.
        """
        lock, num_held = self._lock, self._num_held
        if not lock.locked() or self._is_held():
            self._suspect = None
            return
        suspect, now = self._suspect, time.monotonic()
        if suspect is None or suspect[:2] != (lock, num_held):
            self._suspect = (lock, num_held, now)
        elif now - suspect[2] >= LOOK_AGAIN_S / 2:
            self._suspect = None
            self._lock = threading.Lock()

    def _is_held(self) -> bool:
        """Whether a live thread is in `run` and has acquired the lock."""
        code = StepLock.run.__code__
        for top in sys._current_frames().values():  # noqa: SLF001 - it is documented for debuggers
            frame: FrameType | None = top
            while frame is not None:
                if frame.f_code is code:
                    values = frame.f_locals
                    if values.get("self") is self and values.get("held"):
                        return True
                frame = frame.f_back
        return False
