"""
Background embedding of committed messages, in one thread per search index.

The queue is the store itself: all messages without a vector, so that a crash loses no work, and
a change of the embedder only makes the queue longer. The newest messages come first.
"""

import atexit
import logging
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from agentmem.machine.forks import renew_in_child
from agentmem.machine.logs import log, nature
from agentmem.protocols import RetrievalStore
from agentmem.retrieval.dense.embed_messages import embed_messages
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.types import IndexHealth, MessageId, Origin, StoredMessage

PAGE: Final = 32
"""Messages per page, embedded and stored together."""

_RETRY_AFTER_S: Final = (0.1, 0.5)
"""Delays before the retries of a page."""

_REST_S: Final = (2.0, 60.0)
"""First and longest delay after all retries of a page have failed."""

_SWEEP_EVERY_S: Final = 60.0
_LEAST_REST_S: Final = 0.5
_REST_FACTOR: Final = 20
"""Minimum ratio of the pause before the next sweep to the duration of a sweep."""

_NOTHING: Final = MessageId(0)

_log = logging.getLogger(__name__)


class _StopWorking(BaseException):
    """The worker was closed during its work."""


class EmbeddingWorker:
    """
    Embeds the messages without a vector. Thread-safe.

    An error of the embedder or of the store is kept in *last_error*, and the work is retried
    later. A single message that cannot be embedded is skipped until the next start.

    Args:
        retrieval store: the queue, and the store of vectors.
        embedder: computes them.
        chores: called between pages and when idle.
    """

    def __init__(
        self,
        retrieval_store: RetrievalStore,
        embedder: Embedder,
        chores: Callable[[], None] = lambda: None,
    ) -> None:
        self._retrieval_store = retrieval_store
        self._embedder = embedder
        self._chores = chores
        self.last_error: str | None = None
        self.set_aside: set[MessageId] = set()
        self.num_rounds = 0
        """Completed sweeps over the whole queue."""
        self._is_closed = False
        self.begin_anew()
        _workers.add(self)
        renew_in_child(self)

    def begin_anew(self) -> None:
        """Start without a thread and with locks of its own, as a forked process must."""
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._asked = 0
        self._tried = 0
        """Requests handled, with or without success."""
        self._is_done = True
        self._behind_since = 0.0
        self._wants_sweep = False
        self._is_urgent = False
        self._newest: MessageId | None = None
        """Start of the newer messages, which come first."""
        self._swept_at = float("-inf")
        self._sweep_s = 0.0
        self._rest_s = _REST_S[0]

    def wake(self, *, sweep: bool = False) -> None:
        """
        Wake the worker to embed new messages in the background.

        Args:
            sweep: scan all messages, not only those after the newest of the last time.
        """
        with self._changed:
            self._ask(sweep=sweep)

    def wake_if_idle(self) -> None:
        """Request a sweep, unless one was done recently: a message has no vector."""
        with self._changed:
            rest_s = max(_LEAST_REST_S, _REST_FACTOR * self._sweep_s)
            is_idle = self._tried == self._asked
            if is_idle and time.monotonic() - self._swept_at > rest_s:
                self._ask(sweep=True)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all stored messages are embedded or failed; return whether none failed."""
        with self._changed:
            if self._is_closed:
                return False
            self._is_urgent = True
            self._ask(sweep=True)
            asked = self._asked
            self._changed.wait_for(lambda: self._tried >= asked or self._is_closed, timeout_s)
            return self._tried >= asked and self._is_done

    def health(self) -> IndexHealth:
        """Return the health of the worker; failed messages count as pending."""
        with self._changed:
            is_idle = self._tried == self._asked
            is_behind = not is_idle or (self.last_error is not None and not self.set_aside)
            return IndexHealth(
                is_idle=not is_behind,
                lag_s=time.monotonic() - self._behind_since if is_behind else 0.0,
                num_set_aside=len(self.set_aside),
                is_closed=self._is_closed,
                last_error=self.last_error,
            )

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop after the current batch. Idempotent."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _ask(self, *, sweep: bool) -> None:
        if self._is_closed:
            return
        if self._tried == self._asked:
            self._behind_since = time.monotonic()
        self._asked += 1
        self._wants_sweep |= sweep
        self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="agentmem-embedding", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        with suppress(_StopWorking):
            while True:
                self._round()

    def _round(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._tried < self._asked)
            asked, sweep, began = self._asked, self._wants_sweep, time.monotonic()
            self._wants_sweep = self._is_urgent = False
        try:
            self._work(sweep=sweep)
        # A thread that dies silently is the worst failure: any error is reported, and the work
        # is retried.
        except Exception as error:  # noqa: BLE001
            self._note(error)
            self._finish(asked, began, is_done=False)
            self._rest()
        else:
            self._finish(asked, began, is_done=not self.set_aside)

    def _finish(self, asked: int, began: float, *, is_done: bool) -> None:
        with self._changed:
            self._tried = asked
            if self._is_done or is_done:
                self._behind_since = began  # messages since then are pending
            self._is_done = is_done
            self.num_rounds += 1
            if is_done:
                self.last_error = None
                self._rest_s = _REST_S[0]
            self._changed.notify_all()

    def _rest(self) -> None:
        """Pause unless a caller waits, then retry failed messages."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._is_urgent, self._rest_s)
            self._rest_s = min(2 * self._rest_s, _REST_S[1])
            self._ask(sweep=True)

    def _pause(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed, seconds)
        self._stop_if_closed()

    def _stop_if_closed(self) -> None:
        if self._is_closed:
            raise _StopWorking

    def _work(self, *, sweep: bool) -> None:
        if self._newest is None:
            self._newest = self._find_newest()
        sweep |= time.monotonic() - self._swept_at > _SWEEP_EVERY_S
        self._embed_new()
        if sweep:
            self._sweep()
        self._chores()

    def _embed_new(self) -> None:
        assert self._newest is not None
        while page := self._page(self._newest):
            self._embed(page)
            self._newest = page[-1].id

    def _sweep(self) -> None:
        """
        Scan all stored messages, newer ones that arrive meanwhile first.

        Ids are not in commit order, so a new message may have a lower id than the newest one.
        """
        started = time.monotonic()
        after = _NOTHING
        while page := self._page(after):
            self._embed(page)
            after = page[-1].id
            self._embed_new()
        self._swept_at = time.monotonic()
        self._sweep_s = self._swept_at - started

    def _page(self, after: MessageId, limit: int = PAGE) -> Sequence[StoredMessage]:
        self._stop_if_closed()
        return self._retrieval_store.not_embedded(
            self._embedder.fingerprint, after=after, limit=limit
        )

    def _find_newest(self) -> MessageId:
        """Find the newest message of a long queue; later messages need not wait for the queue."""
        page = self._page(_NOTHING)
        if len(page) < PAGE:
            return _NOTHING
        known, step = page[-1].id, 1
        while behind := self._page(MessageId(known + step), 1):
            known, step = behind[0].id, 2 * step
        # No message is after *end*; that at *known* exists.
        end = known + step
        while end > known:
            middle = MessageId((known + end) // 2)
            if behind := self._page(middle, 1):
                known = behind[0].id
            else:
                end = middle
        return MessageId(end)

    def _embed(self, page: Sequence[StoredMessage]) -> None:
        # An unreadable message is neither embedded nor marked done: it may be restored.
        readable = (stored for stored in page if stored.origin is not Origin.DAMAGED)
        wanted = [stored for stored in readable if stored.id not in self.set_aside]
        for pause_s in _RETRY_AFTER_S:
            try:
                self._store(wanted)
            except Exception as error:  # noqa: BLE001 - what a model may raise has no list
                self._note(error)
                self._pause(pause_s)
            else:
                return self._chores()
        self._embed_one_by_one(wanted)
        return self._chores()

    def _embed_one_by_one(self, page: Sequence[StoredMessage]) -> None:
        """Isolate the messages that cannot be embedded, if some can."""
        failed: set[MessageId] = set()
        errors: list[Exception] = []
        for stored in page:
            try:
                self._store([stored])
            except Exception as error:  # noqa: BLE001 - as above
                failed.add(stored.id)
                errors.append(error)
                self._note(error)
        if len(failed) == len(page) and errors:
            raise errors[-1]
        self.set_aside |= failed

    def _store(self, page: Sequence[StoredMessage]) -> None:
        embeddings = embed_messages(page, self._embedder, self._stop_if_closed)
        if embeddings:
            self._retrieval_store.add_embeddings(self._embedder.fingerprint, embeddings)

    def _note(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        # The retrieval store may have been closed together with this.
        if text != self.last_error and not self._is_closed:
            log(
                _log,
                logging.WARNING,
                "embedding_failed",
                "messages could not be embedded and will be retried: {error}",
                error=nature(error),
                num_set_aside=len(self.set_aside),
            )
        self.last_error = text


_workers: "weakref.WeakSet[EmbeddingWorker]" = weakref.WeakSet()


def _close_all() -> None:
    """Stop before interpreter shutdown: a thread inside a model could not end cleanly then."""
    for worker in list(_workers):
        worker.close()


atexit.register(_close_all)
