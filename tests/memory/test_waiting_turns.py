"""
What is stored when a reply comes too late, is refused, or is left: the question, and what was said.

A real engine with a tiny model, in which a byte is a token; each test answers in both forms.
"""

import asyncio

import pytest

from agentmem.config import Budget, Sampling
from agentmem.errors import AdmissionError, DeadlineError, InvalidInputError, QueueFullError
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from agentmem.types import FinishReason
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_module

MODULE = tiny_module()
LONG = Sampling(max_tokens=12, ignore_eos=True)


def reply(conversation, *args, **options):
    return conversation.reply(*args, **options)


def areply(conversation, *args, **options):
    return asyncio.run(conversation.areply(*args, **options))


def stream(conversation, *args, **options):
    with conversation.stream(*args, **options) as pieces:
        return "".join(pieces), pieces.reply


def astream(conversation, *args, **options):
    async def read():
        async with await conversation.astream(*args, **options) as pieces:
            return "".join([piece async for piece in pieces]), pieces.reply

    return asyncio.run(read())


answers = pytest.mark.parametrize("answer", [reply, areply, stream, astream])


def texts(conversation):
    return [stored.message.text for stored in conversation.messages()]


@pytest.fixture
def model():
    return model_with_blocks(60, module=MODULE, max_waiting=1)


@pytest.fixture
def budget():
    return Budget(context=200, reply=20)


@pytest.fixture
def clock(monkeypatch):
    """The engine's clock, to be set; it does not move by itself."""
    now = [0.0]
    monkeypatch.setattr("agentmem.inference.engine.engine.time.monotonic", lambda: now[0])
    return now


def the_turn_can_be_answered_again(session, model):
    """Nothing else was stored, no block is held, and the answer is that of a first attempt."""
    assert texts(session) == ["hello"]
    assert model.kv_usage().in_use == 0

    again = session.reply(sampling=LONG)

    assert texts(session) == ["hello", again.message.message.text]
    assert again.usage.completion_tokens == 12
    assert session.check() == ()
    model.check()
    return True


@answers
def test_a_reply_that_comes_too_late_leaves_the_question_to_be_answered(session, model, answer):
    with pytest.raises(DeadlineError, match="no token after its 1e-09 s") as caught:
        answer(session, "hello", timeout_s=1e-9)

    assert caught.value.timeout_s == 1e-9
    assert the_turn_can_be_answered_again(session, model)


@pytest.mark.slow
@answers
def test_a_reply_for_which_the_queue_is_full_leaves_the_question(session, model, answer):
    before = model.submit(ask(random_ids(20), 4))

    with pytest.raises(QueueFullError, match="1 requests wait already"):
        answer(session, "hello")

    before.cancel()
    assert the_turn_can_be_answered_again(session, model)


@answers
def test_a_reply_that_can_never_fit_the_pool_leaves_the_question(url, answer):
    model = model_with_blocks(8, module=MODULE)
    with Memory.open(url, model=model, budget=Budget(context=200, reply=20)) as memory:
        session = memory.session("trip")

        with pytest.raises(AdmissionError, match="but the KV pool"):
            answer(session, "hello")

        assert texts(session) == ["hello"]
        smaller = Sampling(max_tokens=1)
        assert session.reply(sampling=smaller).usage.completion_tokens == 1


def test_an_answer_whose_time_is_over_in_the_middle_is_stored_as_far_as_it_came(
    session, model, clock
):
    pieces = session.stream("hello", sampling=LONG, timeout_s=5)
    first = next(pieces)

    clock[0] = 6.0
    text = first + "".join(pieces)

    assert pieces.reply.finish_reason is FinishReason.ABORT
    assert 0 < pieces.reply.usage.completion_tokens < 12
    assert pieces.reply.text == text
    assert texts(session) == ["hello", text]
    assert pieces.reply.message.message.generated.token_ids
    assert model.kv_usage().in_use == 0


def test_the_same_holds_for_coroutines(session, clock):
    async def talk():
        async with await session.astream("hello", sampling=LONG, timeout_s=5) as pieces:
            first = await anext(pieces)
            clock[0] = 6.0
            return first + "".join([piece async for piece in pieces]), pieces.reply

    text, cut = asyncio.run(talk())

    assert (cut.finish_reason, cut.text) == (FinishReason.ABORT, text)
    assert texts(session) == ["hello", text]


def test_after_an_answer_that_was_cut_the_talk_goes_on_behind_it(session, model, clock):
    pieces = session.stream("hello", sampling=LONG, timeout_s=5)
    next(pieces)
    clock[0] = 6.0
    list(pieces)

    more = session.reply(sampling=LONG, timeout_s=5)

    assert [message.text for message in more.prompt.messages] == ["hello", pieces.reply.text]
    assert len(texts(session)) == 3
    assert session.check() == ()
    model.check()


def test_an_answer_that_is_left_before_its_first_piece_leaves_the_question(session, model):
    with session.stream("hello"):
        pass

    assert the_turn_can_be_answered_again(session, model)


def test_an_answer_that_is_cancelled_is_stored_as_far_as_it_was_read(session, model):
    with session.stream("hello", sampling=LONG, priority=3, timeout_s=60) as pieces:
        first = next(pieces)

    assert texts(session) == ["hello", first]
    assert model.kv_usage().in_use == 0
    assert session.check() == ()


def test_a_coroutine_that_is_cancelled_keeps_the_question_and_what_was_read(session, model):
    async def cancel():
        pieces = await session.astream("hello", sampling=LONG, timeout_s=60)
        first = await anext(pieces)
        rest = asyncio.create_task(pieces.finish())
        await asyncio.sleep(0)
        rest.cancel()
        with pytest.raises(asyncio.CancelledError):
            await rest
        return first

    first = asyncio.run(cancel())

    question, said = texts(session)
    assert question == "hello"
    assert said.startswith(first)
    assert model.kv_usage().in_use == 0
    assert session.check() == ()


def test_a_reply_of_higher_priority_begins_first(url):
    """One request runs at a time; of the two that wait the one that came later is served first."""
    model = model_with_blocks(60, module=MODULE, max_num_seqs=1)
    with Memory.open(url, model=model, budget=Budget(context=200, reply=20)) as memory:
        running = model.submit(ask(random_ids(20), 4))
        next(running)
        low = model.submit(ask(random_ids(20, seed=1), 4))

        memory.session("trip").reply("hello", sampling=LONG, priority=1)

        assert low.num_tokens == 0


@answers
def test_priority_and_time_reach_the_model(url, answer):
    model = ScriptedModel()
    with Memory.open(url, model=model) as memory:
        session = memory.session("trip")

        answer(session, "hello", priority=-2, timeout_s=7)
        answer(session.subtask("look"), "what")

    told = [(request.priority, request.timeout_s) for request in model.requests]
    assert told == [(-2, 7), (0, None)]


WRONG = {
    "priority": ["1", 1.5, True, None],
    "timeout_s": [0, -1, float("nan"), float("inf"), 10**400, "5", True],
}


@answers
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_priority_or_time_is_one_line_and_nothing_is_stored(session, answer, name):
    for value in WRONG[name]:
        with pytest.raises(InvalidInputError, match=f"^{name} must be .*, got .+$") as caught:
            answer(session, "hello", **{name: value})
        assert len(str(caught.value).splitlines()) == 1

    assert session.messages() == ()


@answers
def test_wrong_hits_are_refused_before_anything_is_stored(session, answer):
    with pytest.raises(InvalidInputError, match="hits are a list of Hit"):
        answer(session, "hello", hits=["no hit"])

    assert session.messages() == ()
