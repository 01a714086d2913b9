"""
The coroutine forms: the synchronous code, in a thread. There is no second copy of it.

A call that writes is one transaction, so a cancelled ``await`` finds it done or not begun; a thread
that has begun cannot be stopped, so mostly it is done: give it a client key and repeat it. A reply
that is cancelled ends its generation and gives its KV blocks back before the cancellation goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from agentmem.memory.replying import ReplyStream
from agentmem.types import Prompt, Reply

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")


def in_thread(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Give the coroutine form of *method*, with the same arguments, result and errors."""

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await finished(method, self, *args, **kwargs)

    call.__name__ = f"a{method.__name__}"
    call.__doc__ = f"Do what `{method.__name__}` does, without blocking the event loop."
    return call


async def finished(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """
    Run *work* in a thread; when cancelled, wait for it first.

    A thread cannot be stopped, and whoever cancels must not find it still writing.
    """
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


class AsyncReplyStream:
    """A `ReplyStream` for ``async for``; use it as an ``async with`` block to leave early."""

    def __init__(self, stream: ReplyStream) -> None:
        self._stream = stream

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
        try:
            # StopIteration cannot be raised into a future, so the end is a value here.
            piece = await finished(next, self._stream, None)
        except asyncio.CancelledError:
            await self.aclose()
            raise
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def finish(self) -> Reply:
        """Read to the end and give the reply."""
        async for _ in self:
            pass
        return self.reply

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel what is still running; safe to call twice."""
        await finished(self._stream.close)
