"""
Coroutine forms: the synchronous code, run in threads.

Waiting for a token of a local model takes no thread; its chunks are awaited.

A write is one atomic transaction, so after a cancelled ``await`` it is committed or not started; a
running thread cannot be stopped, so mostly it is committed: retry with a client key. A cancelled
reply ends its generation and releases its KV blocks before the cancellation propagates.
"""

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from agentmem.memory.reply_stream import ReplyStream
from agentmem.protocols import Chunk
from agentmem.types import Prompt, Reply

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
C = TypeVar("C", bound=Callable[..., Any])

_MAX_THREADS = 256
"""Maximum threads for databases and remote models; created on demand."""


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """
    Return the thread pool of this process; a fork creates a new one.

    It is not the event loop's default executor, whose few threads would block each other and the
    rest of the program.
    """
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="agentmem")


def in_thread(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the coroutine form of *method*: same arguments, result and errors."""

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await finished(method, self, *args, **kwargs)

    return _as_form_of(method, call)


def _as_form_of(method: Callable[..., Any], call: C) -> C:
    """Return *call*, the coroutine form, with the name, signature and types of *method*."""
    wraps(method)(call)
    call.__name__ = f"a{method.__name__}"
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{call.__name__}".lstrip(".")
    call.__doc__ = f"Do what `{method.__name__}` does, without blocking the event loop."
    return call


def in_own_thread(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """
    Return the coroutine form of a read-only *method*, in a dedicated thread.

    For calls that must not queue behind others; a cancelled ``await`` abandons it.
    """

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        threads = ThreadPoolExecutor(1, thread_name_prefix="agentmem-own")
        try:
            work = partial(method, self, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(threads, work)
        finally:
            threads.shutdown(wait=False)

    return _as_form_of(method, call)


async def finished(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """
    Run *work* in a thread; when cancelled, wait for it first.

    A thread cannot be stopped, and the following code must not run while it writes.
    """
    call = partial(contextvars.copy_context().run, partial(work, *args, **kwargs))
    running = asyncio.get_running_loop().run_in_executor(_threads(os.getpid()), call)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _settled(running)
        raise


async def _settled(running: "asyncio.Future[Any]") -> None:
    """
    Wait for *running*, through repeated cancellations of the task.

    A cancel scope of anyio, which web frameworks use, cancels at each await.
    """
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # mark as retrieved


class AsyncReplyStream:
    """An async `ReplyStream`; an ``async with`` block closes it early."""

    def __init__(self, stream: ReplyStream) -> None:
        self._stream = stream

    def __repr__(self) -> str:
        return f"Async{self._stream!r}"

    @property
    def prompt(self) -> Prompt:
        """The prompt of the reply."""
        return self._stream.prompt

    @property
    def reply(self) -> Reply:
        """
        The finished answer.

        Raises:
            ConfigError: the stream is not exhausted.
        """
        return self._stream.reply

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        stream = self._stream
        is_native = hasattr(stream.chunks, "__anext__")
        try:
            while not stream.is_over:
                # StopIteration cannot be set on a future, so the end is a value here.
                text = await (self._next() if is_native else finished(next, stream, None))
                if text:
                    return text
        except asyncio.CancelledError:
            await self.aclose()
            raise
        raise StopAsyncIteration

    async def _next(self) -> str:
        """Wait for a chunk without a thread; only storing, at the end, needs one."""
        stream = self._stream
        try:
            chunk = await anext(cast("AsyncIterator[Chunk]", stream.chunks), None)
        except Exception:
            await self.aclose()
            raise
        if chunk is None:
            await self.aclose()
            return ""
        if chunk.result is None and not stream.is_closing:
            return stream.take(chunk)
        return await finished(stream.take, chunk)

    async def finish(self) -> Reply:
        """Read to the end and return the reply."""
        async for _ in self:
            pass
        return self.reply

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:
            # Its coroutine was dropped, such as with a closed loop: it cannot await any more.
            self._stream.close()
        else:
            await self.aclose()

    def close(self) -> None:
        """
        Close from any thread, such as that of a stop button.

        It blocks until the answer so far is stored: in a coroutine use `aclose`.
        """
        self._stream.close()

    async def aclose(self) -> None:
        """Cancel a running generation. Idempotent."""
        await finished(self._stream.close)
