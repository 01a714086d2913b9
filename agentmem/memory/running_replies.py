"""The running replies of a memory, which closing drains."""

import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from agentmem.errors import StoreError
from agentmem.machine.forks import renew_in_child
from agentmem.memory.reply_stream import ReplyStream


class RunningReplies:
    """Weak references to the unfinished reply streams of one memory."""

    def __init__(self) -> None:
        self._is_closing = self._is_over = False
        self.begin_anew()
        renew_in_child(self)

    def begin_anew(self) -> None:
        """Drop the running replies; in a fork they are the parent's."""
        self._guard = threading.Lock()
        self._num_beginning = 0
        self._streams: weakref.WeakSet[ReplyStream] = weakref.WeakSet()

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """
        Count a reply that waits for its first token.

        Raises:
            StoreError: the memory is closed, or closing.
        """
        with self._guard:
            if self._is_closing:
                raise _closed()
            self._num_beginning += 1
        try:
            yield
        finally:
            with self._guard:
                self._num_beginning -= 1

    def add(self, stream: ReplyStream) -> ReplyStream:
        """
        Register *stream* and return it.

        Raises:
            StoreError: the drain has timed out; the stream is closed too.
        """
        with self._guard:
            if not self._is_over:
                self._streams.add(stream)
                return stream
        stream.close()
        raise _closed()

    def close(self, timeout_s: float) -> int:
        """
        Start no more replies, wait for the running ones, and cancel the rest.

        The text so far of a cancelled reply is stored. Return the number of cancelled replies.
        """
        deadline = time.monotonic() + timeout_s
        with self._guard:
            self._is_closing = True
        while self._is_busy() and time.monotonic() < deadline:
            time.sleep(0.01)
        with self._guard:
            self._is_over = True
        left = self._left()
        for stream in left:
            stream.close()
        return len(left)

    def _is_busy(self) -> bool:
        return self._num_beginning > 0 or bool(self._left())

    def _left(self) -> list[ReplyStream]:
        with self._guard:
            return [stream for stream in self._streams if not stream.is_over]


def _closed() -> StoreError:
    return StoreError("this memory is closed: open it again")
