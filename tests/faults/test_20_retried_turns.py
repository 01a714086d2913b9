"""A turn that is sent again with its client key is answered once."""

import asyncio
import threading

import pytest

from agentmem import Memory, ToolCall
from agentmem.errors import ConflictError, InvalidInputError
from agentmem.protocols import Chunk
from agentmem.testing import ScriptedModel
from agentmem.types import FinishReason


@pytest.fixture
def model():
    return ScriptedModel(["the first answer", "the second answer", "the third"])


@pytest.fixture
def session(model):
    with Memory.open("sqlite://", model=model) as memory:
        yield memory.session("s")


def texts(session):
    return [stored.message.text for stored in session.messages()]


def test_a_retry_gives_the_stored_answer_without_the_model(session, model):
    first = session.reply("book it", client_key="k")

    again = session.reply("book it", client_key="k")

    assert (again.text, again.message) == (first.text, first.message)
    assert again.prompt.token_ids == first.prompt.token_ids
    assert again.prompt.assembly_id == first.prompt.assembly_id
    assert again.usage.computed_tokens == again.usage.completion_tokens == 0
    assert again.finish_reason is FinishReason.STOP
    assert len(model.requests) == 1
    assert texts(session) == ["book it", "the first answer"]
    assert session.check() == ()


def test_a_stream_gives_the_stored_answer_too(session, model):
    session.reply("book it", client_key="k")

    with session.stream("book it", client_key="k") as stream:
        assert "".join(stream) == "the first answer"
        assert stream.reply.message == session.messages()[-1]

    assert len(model.requests) == 1


def test_coroutines_give_the_stored_answer_too(session, model):
    async def talk():
        first = await session.areply("book it", client_key="k")
        async with await session.astream("book it", client_key="k") as stream:
            return first.text, "".join([piece async for piece in stream])

    assert asyncio.run(talk()) == ("the first answer", "the first answer")
    assert len(model.requests) == 1


def test_a_retry_answers_where_only_the_question_was_stored(session):
    session.append("user", "book it", client_key="k")

    assert session.reply("book it", client_key="k").text == "the first answer"
    assert session.reply("book it", client_key="k").text == "the first answer"
    assert texts(session) == ["book it", "the first answer"]


def test_a_retry_after_a_half_answer_gives_a_whole_one(session):
    with session.stream("book it", client_key="k") as stream:
        next(stream)

    assert session.reply("book it", client_key="k").text == "the second answer"
    assert session.reply("book it", client_key="k").text == "the second answer"
    assert texts(session) == ["book it", "the", "the second answer"]


def test_a_retry_gives_its_own_answer_when_the_talk_has_gone_on(session):
    session.reply("book it", client_key="k")
    session.reply("thanks")

    assert session.reply("book it", client_key="k").text == "the first answer"
    assert texts(session)[2:] == ["thanks", "the second answer"]


def test_a_turn_that_was_left_unanswered_is_not_answered_behind_another(session):
    session.append("user", "book it", client_key="k")
    session.reply("never mind")

    with pytest.raises(ConflictError, match="continued"):
        session.reply("book it", client_key="k")


def test_a_key_is_for_one_text(session):
    session.reply("book it", client_key="k")

    with pytest.raises(ConflictError):
        session.reply("cancel it", client_key="k")
    with pytest.raises(InvalidInputError, match="client_key"):
        session.reply(client_key="k")


def test_a_retry_in_the_middle_of_a_tool_loop_closes_its_calls_and_answers(session):
    session.append("user", "book it", client_key="k")
    session.append("assistant", tool_calls=[ToolCall(id="c", name="book")])

    reply = session.reply("book it", client_key="k")

    assert reply.prompt.messages[-1].role == "tool"
    assert [stored.message.role for stored in session.messages()][1:] == [
        *("assistant", "tool", "assistant")
    ]


def test_a_subtask_keeps_its_own_keys(session):
    session.reply("plan", client_key="k")
    task = session.subtask("t")

    assert task.reply("book it", client_key="k").text == "the second answer"
    assert task.reply("book it", client_key="k").text == "the second answer"


class Meeting(ScriptedModel):
    """A model that answers when all who ask have asked."""

    def __init__(self, number):
        super().__init__([f"answer {index}" for index in range(number)])
        self.all_asked = threading.Barrier(number)

    def stream(self, request):
        yield Chunk(text="")
        self.all_asked.wait(timeout=30)
        yield from super().stream(request)


def test_retries_at_once_store_one_answer_and_all_give_it(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with Memory.open(url, model=Meeting(3)) as memory:
        session = memory.session("s")
        found = []

        def ask():
            found.append(session.reply("book it", client_key="k"))

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(texts(session)) == 2
        assert {reply.text for reply in found} == {texts(session)[1]}
        assert {reply.message.position for reply in found} == {2}
        assert session.check() == ()
