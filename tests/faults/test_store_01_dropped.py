"""Replies whose reader goes away in the rarer ways, and memories that coroutines close."""

import asyncio
import gc
import subprocess
import sys
import threading
import time

import pytest

from agentmem.errors import StoreError
from agentmem.memory import Memory
from agentmem.types import BranchState
from tests.inference.tiny import tiny_model, tiny_module
from tests.memory.test_closing import WORDS, Slow, is_idle, said

MODULE = tiny_module()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.fixture(params=["generator", "local"])
def model(request):
    Slow.running = 0
    return Slow() if request.param == "generator" else tiny_model(module=MODULE)


IN_A_WRITE = """
import gc, sys, threading, time
from agentmem import Memory
from agentmem.testing import ScriptedModel

memory = Memory.open(sys.argv[1], model=ScriptedModel(["one two three"]))
session = memory.session("x")
stream = session.stream("go")
next(stream)
cycle = [stream]
cycle.append(cycle)
del stream, cycle
memory._store.database.write(lambda _: gc.collect())
for _ in range(200):
    if len(session.messages()) == 2: break
    time.sleep(0.05)
print([one.message.text for one in session.messages()])
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["memory", "file"])
def test_a_stream_that_is_collected_in_the_middle_of_a_write_is_stored(place, tmp_path):
    """The thread waited for its own write, for ever or until the text was lost."""
    url = "sqlite://" if place == "memory" else f"sqlite:///{tmp_path / 'agent.db'}"
    code = [sys.executable, "-W", "error", "-c", IN_A_WRITE, url]
    done = subprocess.run(code, capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.stderr) == ("['go', 'one']\n", "")


def test_a_memory_is_closed_in_a_coroutine_after_its_replies_came_to_their_end(url):
    async def main():
        async with Memory.open(url, model=Slow(pause_s=0.02)) as memory:
            session = await memory.asession("x")
            reply = asyncio.create_task(session.areply("go"))
            await asyncio.sleep(0.05)
            await asyncio.gather(*[memory.aclose(timeout_s=30) for _ in range(3)])
            with pytest.raises(StoreError, match="is closed"):
                await session.areply("more")
        return (await reply).text

    assert asyncio.run(main()) == WORDS


@pytest.mark.slow
def test_coroutines_read_on_while_another_drains_the_memory(url):
    """The loop goes on: what it reads comes to its end."""

    async def main():
        memory = Memory.open(url, model=tiny_model(module=MODULE))
        session = await memory.asession("x")
        stream = await session.astream("go")
        pieces = [await anext(stream)]

        async def read():
            pieces.extend([piece async for piece in stream])

        reading = asyncio.create_task(read())
        await memory.aclose(timeout_s=60)
        await reading
        return "".join(pieces), stream.reply.text

    text, whole = asyncio.run(main())
    assert text.strip() == whole.strip()


@pytest.mark.slow
def test_a_loop_that_ends_while_a_reply_runs_leaves_it_stored(model):
    memory = Memory.open("sqlite://", model=model)
    session = memory.session("x")
    pieces = []

    async def read():
        async with await session.astream("go") as stream:
            async for piece in stream:
                pieces.append(piece)  # noqa: PERF401 - one by one

    async def until_some():
        task = asyncio.get_running_loop().create_task(read())
        while not pieces:  # noqa: ASYNC110 - the reader knows of no event
            await asyncio.sleep(0.005)
        task._log_destroy_pending = False

    def run():
        loop = asyncio.new_event_loop()
        loop.run_until_complete(until_some())
        loop.close()

    run()
    deadline = time.monotonic() + 10
    while len(said(session)) < 2 and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)

    assert is_idle(model)
    assert [role for role, _ in said(session)] == ["user", "assistant"]
    assert said(session)[1][1].startswith("".join(pieces).strip())


def test_a_reply_is_closed_from_another_task_while_one_reads(model):
    async def main():
        with Memory.open("sqlite://", model=model) as memory:
            session = await memory.asession("x")
            stream = await session.astream("go")
            pieces = [await anext(stream)]

            async def read():
                pieces.extend([piece async for piece in stream])

            reading = asyncio.create_task(read())
            await asyncio.sleep(0.01)
            await asyncio.gather(stream.aclose(), stream.aclose())
            stored = said(session)
            await asyncio.wait_for(reading, 10)
            return pieces, stored, said(session)

    pieces, stored, later = asyncio.run(main())
    assert stored == later == [("user", "go"), ("assistant", "".join(pieces))]


@pytest.mark.slow
def test_two_loops_in_two_threads_share_a_memory_and_a_model(url):
    answers = {}
    with Memory.open(url, model=tiny_model(module=MODULE)) as memory:

        async def serve(name):
            async def one(number):
                session = await memory.asession(f"{name} {number}")
                return (await session.areply("hello")).text

            answers[name] = await asyncio.gather(*map(one, range(4)))

        threads = [
            threading.Thread(target=lambda name=name: asyncio.run(serve(name))) for name in "ab"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)

    assert len({*answers["a"], *answers["b"]}) == 1


@pytest.mark.slow
def test_a_time_out_is_prompt_while_forty_others_run():
    async def main():
        model = Slow(*[WORDS] * 50, pause_s=0.1)
        with Memory.open("sqlite://", model=model) as memory:
            sessions = [await memory.asession(str(number)) for number in range(41)]
            others = [asyncio.create_task(one.areply("go")) for one in sessions[1:]]
            await asyncio.sleep(0.2)
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(sessions[0].areply("go"), 0.3)
            taken = time.monotonic() - started
            await asyncio.gather(*others)
            return taken

    assert asyncio.run(main()) < 2


def test_a_subtask_that_is_cancelled_hands_nothing_back_and_has_ended(model):
    async def main():
        with Memory.open("sqlite://", model=model) as memory:
            session = await memory.asession("x")
            await session.aappend("user", "go")
            begun = asyncio.Event()

            async def work():
                async with await session.asubtask("look") as subtask:
                    subtask.promote("never")
                    async with await subtask.astream("what is there?") as stream:
                        async for _ in stream:
                            begun.set()

            task = asyncio.create_task(work())
            await begun.wait()
            for _ in range(2):
                task.cancel()
                await asyncio.sleep(0)
            with pytest.raises(asyncio.CancelledError):
                await task
            states = [one.state for one in session.branches()]
            return said(session), states, is_idle(model)

    told, states, idle = asyncio.run(main())
    assert told == [("user", "go")]
    assert states[-1] is BranchState.DISCARDED
    assert idle


def test_a_cancel_before_the_first_piece_stores_no_answer(model):
    async def main():
        with Memory.open("sqlite://", model=model) as memory:
            session = await memory.asession("x")
            stream = await session.astream("go")
            task = asyncio.create_task(anext(stream))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return said(session), is_idle(model)

    told, idle = asyncio.run(main())
    assert idle
    assert told[0] == ("user", "go")
    assert len(told) <= 2


def test_an_error_of_what_is_done_with_an_answer_leaves_it_stored_once(model):
    with Memory.open("sqlite://", model=model) as memory:
        session = memory.session("x")
        session._writer.apply_policy = lambda told, **_: told.position < 2 or 1 / 0
        stream = session.stream("go")

        with pytest.raises(ZeroDivisionError):
            list(stream)
        stream.close()

        assert [role for role, _ in said(session)] == ["user", "assistant"]
        assert is_idle(model)
