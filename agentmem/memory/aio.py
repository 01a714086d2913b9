"""
The coroutine forms: the synchronous code, in a thread. There is no second copy of it.

Waiting for a token of a local model holds no thread; its chunks are awaited.

A call that writes is one transaction, so a cancelled ``await`` finds it done or not begun; a thread
that has begun cannot be stopped, so mostly it is done: give it a client key and repeat it. A reply
that is cancelled ends its generation and gives its KV blocks back before the cancellation goes on.
"""

import asyncio
import contextvars
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial, wraps
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, cast

from agentmem.memory.replying import ReplyStream
from agentmem.protocols import Chunk
from agentmem.types import Prompt, Reply

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
C = TypeVar("C", bound=Callable[..., Any])

_MAX_THREADS = 256
"""Threads that wait for databases and models of other makers; one is made when none is free."""


@cache
def _threads(_process: int) -> ThreadPoolExecutor:
    """
    Return the threads of this process, which a fork of it does not have.

    They are not the event loop's own: its few threads would keep each other waiting, and
    everything else that the program runs in them.
    """
    return ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="agentmem")


def in_thread(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return the coroutine form of *method*, with the same arguments, result and errors."""

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
    Return the coroutine form of a *method* that stores nothing, in a thread that it has alone.

    It is for what must not wait until another call is done; a cancelled ``await`` leaves it.
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

    A thread cannot be stopped, and the code that runs next must not find it still writing.
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
    Wait for *running*, however often the task is cancelled meanwhile.

    A cancel scope of anyio, which web frameworks end requests with, cancels at each await.
    """
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError:
            continue
    if not running.cancelled():
        running.exception()  # it was seen


class AsyncReplyStream:
    """A `ReplyStream` for ``async for``; use it as an ``async with`` block to leave early."""

    def __init__(self, stream: ReplyStream) -> None:
        self._stream = stream

    def __repr__(self) -> str:
        return f"Async{self._stream!r}"

    @property
    def prompt(self) -> Prompt:
        """The prompt that is being answered."""
        return self._stream.prompt

    @property
    def reply(self) -> Reply:
        """
        The finished answer.

        Raises:
            ConfigError: the stream was not read to its end.
        """
        return self._stream.reply

    def __aiter__(self) -> AsyncIterator[str]:
        return self

    async def __anext__(self) -> str:
        stream = self._stream
        is_native = hasattr(stream.chunks, "__anext__")
        try:
            while not stream.is_over:
                # StopIteration cannot be raised into a future, so the end is a value here.
                text = await (self._next() if is_native else finished(next, stream, None))
                if text:
                    return text
        except asyncio.CancelledError:
            await self.aclose()
            raise
        raise StopAsyncIteration

    async def _next(self) -> str:
        """Wait for a chunk without a thread; only the store, at the end, needs one."""
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
        """Read to the end and give the reply."""
        async for _ in self:
            pass
        return self.reply

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is GeneratorExit:
            # Its coroutine was dropped, as with a loop that is closed: it cannot wait any more.
            self._stream.close()
        else:
            await self.aclose()

    def close(self) -> None:
        """
        Do what `aclose` does, from any thread, such as that of a stop button.

        It waits until the answer so far is stored: in a coroutine use `aclose`.
        """
        self._stream.close()

    async def aclose(self) -> None:
        """Cancel what is still running; safe to call twice."""
        await finished(self._stream.close)
