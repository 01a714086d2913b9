"""A request that has been handed in: read it, wait for it, or cancel it, from threads or a loop."""

import asyncio
import threading
import weakref
from types import TracebackType
from typing import Self

from agentmem.inference.engine.async_driver import AsyncDriver
from agentmem.inference.engine.engine import Engine
from agentmem.inference.engine.request_state import RequestState
from agentmem.protocols import Chunk, GenerationRequest
from agentmem.types import Generation
from agentmem.types.short_repr import short_repr


class RequestHandle:
    """
    One request on its way: an iterator, and an async iterator, over its chunks.

    It moves when a thread or a coroutine waits for it or for any other request of the same model.
    Threads and coroutines may share it: each chunk is read once. Closing or dropping it cancels it.
    """

    def __init__(self, engine: Engine, driver: AsyncDriver, output: RequestState) -> None:
        self._engine = engine
        self._driver = driver
        self._output = output
        self._result: Generation | None = None
        self._is_closed = False
        self._reading = threading.Lock()
        engine.add(output.sequence)
        self._cancel = weakref.finalize(self, engine.cancel, output.sequence)
        self._cancel.atexit = False

    def __repr__(self) -> str:
        return short_repr(
            "RequestHandle", num_prompt_tokens=len(self.request.token_ids), is_done=self.is_done
        )

    @property
    def request(self) -> GenerationRequest:
        """What was asked."""
        return self._output.request

    @property
    def num_tokens(self) -> int:
        """How many tokens it has generated so far."""
        return self._output.num_tokens

    @property
    def is_done(self) -> bool:
        """Whether the result, or an error, is there."""
        return self._output.is_done

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        """
        Return the next piece of text; the last has the result.

        Raises:
            DeadlineError, InferenceError: as `LocalModel.stream` does.
        """
        while not self._is_over():
            self._engine.drive(self._is_ready, self._output.signal)
            if (chunk := self._read()) is not None:
                return chunk
        raise StopIteration

    def result(self) -> Generation:
        """
        Wait for the end. A request that was cancelled has what it said until then.

        Raises:
            DeadlineError, InferenceError: as `LocalModel.generate` does.
        """
        while self._result is None:
            self._engine.drive(self._is_ready, self._output.signal)
            self._read()
        return self._result

    def cancel(self) -> None:
        """End it, and give its blocks back within one step; safe to call at any time and twice."""
        self._engine.cancel(self._output.sequence)

    def close(self) -> None:
        """
        Cancel it and end the iteration, in whichever thread that is.

        A thread that waits for a chunk gets what had come before, and then the end.
        """
        self._is_closed = True
        self.cancel()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def aresult(self) -> Generation:
        """Do what `result` does as a coroutine; cancelling it cancels the request."""
        try:
            while self._result is None:
                await self._wait()
                self._read()
        except asyncio.CancelledError:
            self.cancel()
            raise
        return self._result

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Chunk:
        try:
            while not self._is_over():
                await self._wait()
                if (chunk := self._read()) is not None:
                    return chunk
        except asyncio.CancelledError:
            self.cancel()
            raise
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Do what `close` does; it waits for nothing."""
        self.close()

    def _is_over(self) -> bool:
        return self._result is not None or self._is_closed

    def _is_ready(self) -> bool:
        return self._is_over() or self._output.is_ready()

    def _read(self) -> Chunk | None:
        """
        Take the chunk that has come, None if another thread was faster.

        Raises:
            DeadlineError, InferenceError: there will be none.
        """
        with self._reading:
            if self._result is not None or not self._output.is_ready():
                return None
            chunk = self._output.next_chunk()
            self._result = chunk.result
        if chunk.result is not None:
            self._output.signal.set()  # others that wait for this request find the result
        return chunk

    async def _wait(self) -> None:
        """Wait, without a thread, until there is something to read."""
        loop = asyncio.get_running_loop()
        while not self._is_ready():
            woken = loop.create_future()
            key = self._output.signal.add(_Waker(loop, woken))
            try:
                if not self._is_ready():
                    self._driver.watch(self._output)
                    await woken
            finally:
                self._output.signal.remove(key)
        # A consumer that never has to wait would keep the loop from all others.
        await asyncio.sleep(0)


class _Waker:
    """
    Resolves a future of a loop from any thread.

    A loop that is closed needs no waking: then it lets go of the task that waits, which would not
    be collected else as long as its request runs.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, woken: "asyncio.Future[None]") -> None:
        self._loop = loop
        self._woken: asyncio.Future[None] | None = woken

    def __call__(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:  # it is closed, perhaps just now
            self._woken = None

    def _resolve(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
