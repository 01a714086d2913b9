"""The coroutine forms, under gather and cancellation."""

import asyncio
import threading

import pytest

from agentmem.errors import InvalidInputError
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from agentmem.types import BranchState


def texts(session):
    return [stored.message.text for stored in session.messages()]


class Waiting(ScriptedModel):
    """Says a word, then waits until it is let go or closed."""

    def __init__(self):
        super().__init__()
        self.has_begun = threading.Event()
        self.go_on = threading.Event()
        self.is_closed = False

    def stream(self, request):
        chunks = super().stream(request)
        try:
            yield next(chunks)
            self.has_begun.set()
            self.go_on.wait(60)
            yield from chunks
        finally:
            self.is_closed = True


def test_a_reply_is_awaited(session):
    reply = asyncio.run(session.areply("hello"))

    assert reply.text == "ok"
    assert texts(session) == ["hello", "ok"]


def test_a_stream_is_read_piece_by_piece(session):
    async def talk():
        async with await session.astream("hello") as stream:
            return [piece async for piece in stream], stream.reply.text

    assert asyncio.run(talk()) == (["ok"], "ok")


def test_errors_are_the_same(session):
    with pytest.raises(InvalidInputError):
        asyncio.run(session.aappend("user", ""))


def test_many_sessions_at_once_keep_their_own_order(memory):
    async def talk(number):
        session = await memory.asession(f"s{number}")
        for turn in range(5):
            await session.areply(f"{number} {turn}")
        return texts(session)[::2]

    async def all_of_them():
        return await asyncio.gather(*(talk(number) for number in range(8)))

    said = asyncio.run(all_of_them())
    assert said == [[f"{number} {turn}" for turn in range(5)] for number in range(8)]


def test_appends_to_one_session_at_once_are_all_there(session):
    async def append_all():
        await asyncio.gather(*(session.aappend("user", f"m{n}") for n in range(40)))

    asyncio.run(append_all())

    assert sorted(texts(session)) == sorted(f"m{n}" for n in range(40))
    assert [stored.position for stored in session.messages()] == list(range(1, 41))


def test_a_cancelled_reply_ends_its_generation_and_keeps_what_was_said(url):
    model = Waiting()
    with Memory.open(url, model=model) as memory:
        session = memory.session("s")

        async def cancel():
            task = asyncio.create_task(session.areply("hello"))
            assert await asyncio.to_thread(model.has_begun.wait, 60)
            task.cancel()
            await asyncio.sleep(0.01)
            model.go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancel())

        assert model.is_closed
        assert texts(session) in (["hello"], ["hello", "ok"])


def test_a_cancelled_append_is_done_or_not_begun(session):
    async def cancel_some():
        tasks = [asyncio.create_task(session.aappend("user", f"m{n}")) for n in range(20)]
        await asyncio.sleep(0.005)
        for task in tasks[::2]:
            task.cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = asyncio.run(cancel_some())

    stored = set(texts(session))
    done = {f"m{n}" for n, result in enumerate(results) if not isinstance(result, BaseException)}
    assert done <= stored
    assert [s.position for s in session.messages()] == list(range(1, len(stored) + 1))


def test_a_subtask_is_an_async_block_too(session):
    async def delegate():
        async with await session.asubtask("look") as task:
            await task.areply("what")
            task.promote("this")
        return task

    task = asyncio.run(delegate())

    assert texts(session) == ["this"]
    assert task.branch.state is BranchState.ENDED


def test_a_generator_has_ended_when_its_answer_is_whole():
    ended = []

    class Cleaning(ScriptedModel):
        def stream(self, request):
            try:
                yield from super().stream(request)
            finally:
                ended.append(True)
                raise RuntimeError("cleaning up failed")

    with Memory.open("sqlite://", model=Cleaning()) as memory:
        stream = memory.session("s").stream("hello")
        assert "".join(stream) == "ok"

        assert ended == [True]
        assert stream.reply.text == "ok"
