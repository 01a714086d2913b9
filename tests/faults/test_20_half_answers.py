"""An answer that was broken off gives way to the one that is given in its place."""

import asyncio

import pytest

from agentmem import Memory, ReasoningPart
from agentmem.errors import InvalidInputError
from agentmem.protocols import Chunk
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import Origin, TruncationReason, common_prefix
from tests.faults.legal import faults


class Breaking(ScriptedModel):
    """A model that fails in the middle of its first answers."""

    def __init__(self, num_failures=1, replies=("a whole answer",)):
        super().__init__(replies)
        self.num_failures = num_failures

    def stream(self, request):
        if self.num_failures:
            self.num_failures -= 1
            yield Chunk(text="half an ans")
            raise RuntimeError("the model broke")
        yield from super().stream(request)


def opened(model):
    return Memory.open("sqlite://", model=model)


def shown(prompt):
    assert faults(prompt.messages) == []
    return [message.text for message in prompt.messages]


@pytest.mark.parametrize("num_failures", [1, 2, 3])
def test_a_retry_does_not_see_the_half_answer_that_is_in_the_store(num_failures):
    with opened(Breaking(num_failures)) as memory:
        session = memory.session("s")
        with pytest.raises(RuntimeError):
            session.reply("question")
        for _ in range(num_failures - 1):
            with pytest.raises(RuntimeError):
                session.reply()

        reply = session.reply()

        assert shown(reply.prompt) == ["question"]
        halves = [one for one in session.messages() if one.origin is Origin.PARTIAL]
        assert [one.message.text for one in halves] == ["half an ans"] * num_failures
        rules = {(one.first, one.reason) for one in session.truncations()}
        assert rules == {(one.position, TruncationReason.REPLACED) for one in halves}
        after = session.reply("next").prompt
        assert shown(after) == ["question", "a whole answer", "next"]
        assert common_prefix(reply.prompt.token_ids, after.token_ids) == reply.prompt.num_tokens
        assert after.reuse.broken_by is None
        assert session.check() == ()


def test_a_stream_that_was_left_gives_way_as_well():
    with opened(ScriptedModel(["one two three", "another answer"])) as memory:
        session = memory.session("s")
        with session.stream("question") as stream:
            next(stream)

        assert session.messages()[-1].message.text == "one"
        assert shown(session.reply().prompt) == ["question"]


def test_coroutines_give_way_as_well():
    async def talk(session):
        with pytest.raises(RuntimeError):
            await session.areply("question")
        return await session.areply()

    with opened(Breaking()) as memory:
        session = memory.session("s")
        assert shown(asyncio.run(talk(session)).prompt) == ["question"]


def test_what_the_user_goes_on_from_is_shown():
    with opened(Breaking()) as memory:
        session = memory.session("s")
        with pytest.raises(RuntimeError):
            session.reply("question")

        prompt = session.reply("go on then").prompt

        assert shown(prompt) == ["question", "half an ans", "go on then"]
        assert session.check() == ()


def test_a_half_answer_in_a_subtask_gives_way():
    with opened(Breaking()) as memory:
        session = memory.session("s")
        session.append("user", "plan")
        task = session.subtask("t")
        with pytest.raises(RuntimeError):
            task.reply("question")

        assert shown(task.reply().prompt) == ["plan", "question"]


@pytest.mark.parametrize("content", ["", " \n", None, [], [ReasoningPart(text="hm")]])
def test_an_answer_without_a_word_is_stored_and_shown_as_nothing(content):
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        session = memory.session("s")
        session.append("user", "one")
        before = session.assemble()
        stored = session.append("assistant", content)
        assert stored.position == 2
        assert shown(session.assemble()) == ["one"]
        session.append("user", "two")

        prompt = session.assemble()

        assert shown(prompt) == ["one", "two"]
        assert prompt.reuse.common_tokens <= common_prefix(before.token_ids, prompt.token_ids)
        assert session.check() == ()


def test_a_question_whose_answer_had_no_word_can_be_answered_again():
    with opened(ScriptedModel(["", "a word"])) as memory:
        session = memory.session("s")
        assert session.reply("question").message is None
        session.append("assistant", None)

        assert session.reply().text == "a word"


@pytest.mark.parametrize("content", ["", "  ", None])
def test_a_user_who_says_nothing_is_refused_in_words(content):
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        session = memory.session("s")
        with pytest.raises(InvalidInputError, match="the user message is empty"):
            session.append("user", content)
        assert session.branch.head == 0
