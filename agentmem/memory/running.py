"""The replies that are on their way, so that closing a memory can drain them."""

import threading
import time
import weakref

from agentmem.errors import StoreError
from agentmem.machine.forks import renew_in_child
from agentmem.memory.replying import ReplyStream


class RunningReplies:
    """All unfinished reply streams of one memory; it keeps none of them alive."""

    def __init__(self) -> None:
        self._is_closing = False
        self.begin_anew()
        renew_in_child(self)

    def begin_anew(self) -> None:
        """Forget the replies that run; in a fork they are its parent's."""
        self._guard = threading.Lock()
        self._streams: weakref.WeakSet[ReplyStream] = weakref.WeakSet()

    def require_open(self) -> None:
        """
        Check that a new reply may begin.

        Raises:
            StoreError: the memory is closed, or closing.
        """
        if self._is_closing:
            raise StoreError("this memory is closed: open it again")

    def add(self, stream: ReplyStream) -> ReplyStream:
        """
        Keep account of *stream* and return it.

        Raises:
            StoreError: the memory was closed meanwhile; the stream is closed too.
        """
        with self._guard:
            if not self._is_closing:
                self._streams.add(stream)
                return stream
        stream.close()
        self.require_open()
        return stream

    def close(self, timeout_s: float) -> int:
        """
        Begin no more replies, wait for those that run, and end the rest.

        What an ended reply has said is stored. Returns how many were ended.
        """
        deadline = time.monotonic() + timeout_s
        with self._guard:
            self._is_closing = True
        while (left := self._left()) and time.monotonic() < deadline:
            time.sleep(0.01)
        for stream in left:
            stream.close()
        return len(left)

    def _left(self) -> list[ReplyStream]:
        with self._guard:
            return [stream for stream in self._streams if not stream.is_over]
