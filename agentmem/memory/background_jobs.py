"""
Background jobs: one thread, which ends when it is idle.

Each job has a key; a queued key is not queued twice, and one that has failed too often is not run
until it is reset.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentmem.machine.forks import renew_in_child
from agentmem.machine.logs import log, nature
from agentmem.types import CompactionHealth
from agentmem.types.fields import Checked

MAX_FAILURES: Final = 3
"""Maximum failures of a job before it is no longer run."""

_MAX_REMEMBERED: Final = 1024
"""Maximum failed jobs whose reason is kept; the oldest are evicted first."""

_MAX_REASON: Final = 500
_PATIENCE_S: Final = 5.0

_log = logging.getLogger(__name__)


class CompactionStatus(StrEnum):
    """State of background compaction of a branch."""

    IDLE = "idle"
    WAITING = "waiting"
    RUNNING = "running"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionState(Checked):
    """
    Background compaction of a branch under a budget, and the error of the last attempt.

    After a failure the branch is compacted when its window is full, as without background
    compaction.
    """

    status: CompactionStatus = CompactionStatus.IDLE
    failures: int = 0
    """Consecutive failed attempts; after three there are none until it is compacted."""

    reason: str = ""


IsCancelled = Callable[[], bool]
Job = Callable[[IsCancelled], None]


class Background:
    """
    Runs jobs one by one in a separate thread.

    The thread ends when it is idle, and does not block the exit of the program.
    """

    def __init__(self) -> None:
        self._failed: OrderedDict[Hashable, CompactionState] = OrderedDict()
        self._is_closed = False
        self.begin_anew()
        renew_in_child(self)

    def begin_anew(self) -> None:
        """Drop all jobs and the thread, which in a fork are the parent's."""
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Hashable, Job] = OrderedDict()
        self._running: Hashable | None = None
        self._thread: threading.Thread | None = None

    def ask(self, key: Hashable, job: Job) -> None:
        """Queue *job*, unless one of that *key* is queued, runs, or has failed too often."""
        with self._changed:
            is_busy = key in self._waiting or key == self._running
            if self._is_closed or is_busy or self._failures(key) >= MAX_FAILURES:
                return
            self._waiting[key] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="agentmem", daemon=True)
                self._thread.start()

    def settle(self, key: Hashable) -> None:
        """Reset the failures of *key*, whose work is done."""
        with self._changed:
            self._failed.pop(key, None)

    def state(self, key: Hashable) -> CompactionState:
        """Return the state of the jobs of *key*."""
        with self._changed:
            failed = self._failed.get(key, CompactionState())
            status = failed.status
            if key in self._waiting:
                status = CompactionStatus.WAITING
            elif key == self._running:
                status = CompactionStatus.RUNNING
            return CompactionState(status=status, failures=failed.failures, reason=failed.reason)

    def health(self) -> CompactionHealth:
        """Return the health of the jobs, over all keys."""
        with self._changed:
            last = next(reversed(self._failed.values()), CompactionState())
            return CompactionHealth(
                num_waiting=len(self._waiting),
                is_running=self._running is not None,
                num_failed=len(self._failed),
                last_error=last.reason or None,
            )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is idle; return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, timeout_s)

    def close(self) -> None:
        """
        Start no more jobs, and wait some seconds for the running one.

        A job that takes longer is cancelled and abandoned: it writes nothing any more.
        """
        with self._changed:
            self._is_closed = True
            self._waiting.clear()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_PATIENCE_S)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                key, job = self._waiting.popitem(last=False)
                self._running = key
            reason: str | None = None
            try:
                job(self._cancelled)
            except Exception as error:  # noqa: BLE001 - a job runs code of the user's
                reason = f"{type(error).__name__}: {error}"[:_MAX_REASON]
                self._log_failure(key, error)
            with self._changed:
                self._running = None
                self._note(key, reason)

    def _log_failure(self, key: Hashable, error: Exception) -> None:
        log(
            _log,
            logging.WARNING,
            "compaction_failed",
            "a background compaction failed: {error}",
            error=nature(error),
            failures=self._failures(key) + 1,
        )

    def _cancelled(self) -> bool:
        return self._is_closed

    def _note(self, key: Hashable, reason: str | None) -> None:
        failures = self._failures(key) + 1
        self._failed.pop(key, None)
        if reason is not None and not self._is_closed:
            self._failed[key] = CompactionState(
                status=CompactionStatus.FAILED, failures=failures, reason=reason
            )
        while len(self._failed) > _MAX_REMEMBERED:
            self._failed.popitem(last=False)

    def _failures(self, key: Hashable) -> int:
        return self._failed.get(key, CompactionState()).failures
