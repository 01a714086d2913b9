"""A request that has been handed in: read it, wait for it, or cancel it, from threads or a loop."""

import asyncio
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from agentmem.inference.engine import Engine
from agentmem.inference.generation import Output
from agentmem.protocols import Chunk, GenerationRequest
from agentmem.types import Generation

T = TypeVar("T")


class Pending:
    """
    One request on its way.

    It moves when somebody waits for it or for any other request of the same model. Dropping it
    cancels it.
    """

    def __init__(self, engine: Engine, output: Output) -> None:
        self._engine = engine
        self._output = output
        self._result: Generation | None = None
        # Two threads may wait for one request: one reads, the other finds the result.
        self._reading = threading.Lock()
        engine.add(output.sequence)
        self._cancel = weakref.finalize(self, engine.cancel, output.sequence)
        self._cancel.atexit = False

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
        """Tell whether the result, or an error, is there."""
        return self._output.is_done

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        """
        Give the next piece of text; the last has the result.

        Raises:
            DeadlineError, InferenceError: as `LocalModel.stream` does.
        """
        with self._reading:
            if self._result is not None:
                raise StopIteration
            self._engine.drive(self._output.is_ready, self._output.event)
            chunk = self._output.next_chunk()
            self._result = chunk.result
            return chunk

    def result(self) -> Generation:
        """
        Wait for the end. A request that was cancelled has what it said until then.

        Raises:
            DeadlineError, InferenceError: as `LocalModel.generate` does.
        """
        for _ in self:
            pass
        assert self._result is not None, "the last chunk has the result"
        return self._result

    def cancel(self) -> None:
        """End it, and give its blocks back within one step; safe to call at any time and twice."""
        self._engine.cancel(self._output.sequence)

    async def aresult(self) -> Generation:
        """Do what `result` does as a coroutine; cancelling it cancels the request."""
        return await self._in_thread(self.result)

    def __aiter__(self) -> AsyncIterator[Chunk]:
        return self

    async def __anext__(self) -> Chunk:
        chunk = await self._in_thread(lambda: next(self, None))
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    async def _in_thread(self, work: Callable[[], T]) -> T:
        running = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            # The thread ends with the request; nobody is to find it still at work.
            self.cancel()
            await asyncio.wait([running])
            raise
