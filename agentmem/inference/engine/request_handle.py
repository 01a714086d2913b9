"""The handle of a submitted request: read, wait or cancel, from threads or event loops."""

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
    A submitted request: an iterator, and an async iterator, over its chunks.

    It progresses while a thread or a coroutine waits for any request of the same model.
    Thread-safe, also for coroutines: each chunk is read once. Closing or dropping it cancels the
    request.
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
        """The request."""
        return self._output.request

    @property
    def num_tokens(self) -> int:
        """Number of tokens generated so far."""
        return self._output.num_tokens

    @property
    def is_done(self) -> bool:
        """Whether the result, or an error, is available."""
        return self._output.is_done

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Chunk:
        """
        Return the next chunk; the last one has the result.

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
        Wait for the result. That of a cancelled request has the text so far.

        Raises:
            DeadlineError, InferenceError: as `LocalModel.generate` does.
        """
        while self._result is None:
            self._engine.drive(self._is_ready, self._output.signal)
            self._read()
        return self._result

    def cancel(self) -> None:
        """Cancel it and release its blocks within one step. Idempotent, safe at any time."""
        self._engine.cancel(self._output.sequence)

    def close(self) -> None:
        """
        Cancel it and end the iteration in any thread.

        A waiting thread gets the chunks so far, and then the end.
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
        """Async form of `result`; cancelling the coroutine cancels the request."""
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
        """Async form of `close`; does not block."""
        self.close()

    def _is_over(self) -> bool:
        return self._result is not None or self._is_closed

    def _is_ready(self) -> bool:
        return self._is_over() or self._output.is_ready()

    def _read(self) -> Chunk | None:
        """
        Return the available chunk; None if another thread took it.

        Raises:
            DeadlineError, InferenceError: no further chunk will come.
        """
        with self._reading:
            if self._result is not None or not self._output.is_ready():
                return None
            chunk = self._output.next_chunk()
            self._result = chunk.result
        if chunk.result is not None:
            self._output.signal.set()  # other waiters of this request find the result
        return chunk

    async def _wait(self) -> None:
        """Wait, without a thread, until a chunk is available."""
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
        # A consumer that never waits would starve the event loop.
        await asyncio.sleep(0)


class _Waker:
    """
    Resolves a future of an event loop from any thread.

    A closed loop is not woken; then the reference to the waiting task is dropped, which would
    otherwise live as long as its request.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, woken: "asyncio.Future[None]") -> None:
        self._loop = loop
        self._woken: asyncio.Future[None] | None = woken

    def __call__(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:  # the loop is closed, perhaps concurrently
            self._woken = None

    def _resolve(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
