"""Closing streams and memories while other threads and event loops use them."""

import asyncio
import gc
import subprocess
import sys
import threading
import time

import anyio
import pytest

from agentmem.errors import ConfigError, StoreError
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel, WordCounter
from tests.inference.tiny import tiny_model, tiny_module

WORDS = "one two three four five six seven eight"
MODULE = tiny_module()


class Slow(ScriptedModel):
    """Takes a moment for each word, and counts the answers that are being made."""

    running = 0

    def __init__(self, *texts, pause_s=0.1):
        super().__init__(list(texts) or [WORDS])
        self.pause_s = pause_s

    def stream(self, request):
        type(self).running += 1
        try:
            for chunk in super().stream(request):
                time.sleep(self.pause_s)
                yield chunk
        finally:
            type(self).running -= 1


@pytest.fixture(params=["generator", "local"])
def model(request):
    Slow.running = 0
    return Slow() if request.param == "generator" else tiny_model(module=MODULE)


def said(session):
    return [(str(one.message.role), one.message.text) for one in session.messages()]


def is_idle(model):
    return Slow.running == 0 if isinstance(model, Slow) else model.kv_usage().in_use == 0


async def read(session, text, pieces):
    async with await session.astream(text) as stream:
        async for piece in stream:
            pieces.append(piece)


async def cancelled(session, pieces, how):
    """Read until some has come, then cancel in that way."""

    async def some():
        while len(pieces) < 2:  # noqa: ASYNC110 - the reader knows of no event
            await asyncio.sleep(0.005)

    if how == "anyio":
        async with anyio.create_task_group() as group:
            group.start_soon(read, session, "go", pieces)
            await some()
            group.cancel_scope.cancel()
        return
    task = asyncio.create_task(read(session, "go", pieces))
    await some()
    for _ in range(1 if how == "once" else 2):
        task.cancel()
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("how", ["once", "twice", "anyio"])
def test_a_cancelled_stream_is_over_and_stored_before_the_cancellation_goes_on(model, how):
    async def main():
        with Memory.open("sqlite://", model=model) as memory:
            session = await memory.asession("x")
            pieces = []
            await cancelled(session, pieces, how)
            at_once, idle = said(session), is_idle(model)
            await asyncio.sleep(0.15)
            return pieces, at_once, idle, said(session)

    pieces, at_once, idle, later = asyncio.run(main())

    assert idle
    assert at_once == later
    assert [role for role, _ in later] == ["user", "assistant"]
    # One more piece may have been on its way.
    assert later[1][1].startswith("".join(pieces))


@pytest.mark.slow
def test_the_next_question_comes_after_a_half_answer_that_was_left():
    async def main():
        with Memory.open("sqlite://", model=Slow(WORDS, "the second")) as memory:
            session = memory.session("x")
            kept = []
            with anyio.move_on_after(0.35):
                stream = await session.astream("first")
                kept.append(stream)
                async with stream:
                    async for _ in stream:
                        pass
            await session.areply("second")
            kept.clear()
            del stream
            gc.collect()
            return said(session)

    roles = [role for role, _ in asyncio.run(main())]

    assert roles == ["user", "assistant", "user", "assistant"]


def test_a_stop_button_ends_the_generation_in_its_place(model):
    with Memory.open("sqlite://", model=model) as memory:
        session = memory.session("x")
        stream = session.stream("go")
        pieces = [next(stream)]
        reader = threading.Thread(target=lambda: pieces.extend(stream))
        reader.start()

        stream.close()
        at_once, idle = said(session), is_idle(model)
        reader.join(10)
        stream.close()

        assert not reader.is_alive()
        assert idle
        assert at_once == said(session) == [("user", "go"), ("assistant", "".join(pieces))]
        with pytest.raises(ConfigError, match="not finished"):
            _ = stream.reply


def test_many_threads_close_a_stream_at_once_and_it_is_stored_once(model):
    with Memory.open("sqlite://", model=model) as memory:
        session = memory.session("x")
        stream = session.stream("go")
        next(stream)
        threads = [threading.Thread(target=stream.close) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(10)

        assert [role for role, _ in said(session)] == ["user", "assistant"]


@pytest.mark.slow
def test_a_stream_that_is_dropped_is_stored_once(model):
    with Memory.open("sqlite://", model=model) as memory:
        session = memory.session("x")
        stream = session.stream("go")
        first = next(stream)

        del stream
        gc.collect()

        assert said(session) == [("user", "go"), ("assistant", first)]
        assert is_idle(model)


def read_until_error(stream, errors):
    try:
        for _ in stream:
            pass
    except StoreError as error:
        errors.append(error)


def test_closing_a_memory_stores_what_was_said_and_begins_nothing(url, model):
    memory = Memory.open(url, model=model)
    session = memory.session("x")
    pieces, errors = [], []
    stream = session.stream("go")
    pieces.append(next(stream))
    reader = threading.Thread(target=lambda: read_until_error(stream, errors))
    reader.start()
    closers = [threading.Thread(target=memory.close) for _ in range(3)]
    for closer in closers:
        closer.start()
    for thread in (*closers, reader):
        thread.join(20)

    assert errors == []
    with pytest.raises(StoreError, match="is closed"):
        session.reply("more")
    if url != "sqlite://":
        with Memory.open(url, counter=WordCounter()) as again:
            texts = said(again.session("x"))
        assert texts[0] == ("user", "go")
        assert texts[1][1].startswith(pieces[0])


def test_closing_a_memory_drains_what_comes_to_its_end_in_time(url):
    memory = Memory.open(url, model=Slow(pause_s=0.02))
    session = memory.session("x")
    stream = session.stream("go")
    reader = threading.Thread(target=lambda: list(stream))
    reader.start()

    memory.close(timeout_s=30)
    reader.join(10)

    assert stream.reply.text == WORDS


CRASH = """
import threading, time
from agentmem import Memory
from agentmem.errors import StoreError
from agentmem.testing import WordCounter
for _ in range(25):
    memory = Memory.open("sqlite://", counter=WordCounter())
    session = memory.session("s")
    def work():
        try:
            while True:
                session.append("user", "hello")
                session.assemble()
        except StoreError:
            pass
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads: thread.start()
    time.sleep(0.01)
    memory.close()
    for thread in threads: thread.join()
print("alive")
"""


@pytest.mark.slow
def test_closing_a_database_in_memory_that_threads_use_does_not_end_the_process():
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=120, check=False
    )

    assert (done.stdout, done.stderr, done.returncode) == ("alive\n", "", 0)
