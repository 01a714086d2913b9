import pytest

from agentmem.config import Budget, Sampling
from agentmem.errors import (
    ConfigError,
    ContextOverflowError,
    InvalidInputError,
    InvalidTextError,
    SessionNotFoundError,
    TranscriptError,
)
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from agentmem.types import Origin, Role, ToolCall, TruncationReason
from tests.builders import words


def texts(messages):
    return [stored.message.text for stored in messages]


def test_a_reply_stores_the_question_and_the_answer(session):
    reply = session.reply("find a hotel")

    assert reply.text == "ok"
    assert texts(session.messages()) == ["find a hotel", "ok"]
    assert reply.message == session.messages()[-1]
    assert reply.usage.prompt_tokens == reply.prompt.num_tokens


def test_the_model_is_given_the_ids_of_the_prompt(session, model):
    reply = session.reply("find a hotel")

    assert model.requests[0].token_ids == reply.prompt.token_ids


def test_the_second_reply_reuses_the_first_prompt(session):
    session.pin("role", "you are a travel agent")
    first = session.reply("find a hotel")
    second = session.reply("cheaper please")

    assert second.usage.cached_tokens == first.prompt.num_tokens


def test_a_stream_gives_the_pieces_and_then_the_reply(memory):
    memory = Memory(memory._store, model=ScriptedModel(["one two three"]))
    session = memory.session("s")

    with session.stream("go") as stream:
        pieces = list(stream)

    assert "".join(pieces) == stream.reply.text == "one two three"
    assert texts(session.messages()) == ["go", "one two three"]


def test_leaving_a_stream_early_keeps_what_was_said(memory):
    memory = Memory(memory._store, model=ScriptedModel(["one two three"]))
    session = memory.session("s")

    with session.stream("go") as stream:
        next(stream)

    assert texts(session.messages()) == ["go", "one"]
    with pytest.raises(ConfigError):
        _ = stream.reply


class Interrupted(ScriptedModel):
    def stream(self, request):
        chunks = super().stream(request)
        yield next(chunks)
        raise KeyboardInterrupt


def test_an_interrupt_in_the_middle_of_an_answer_keeps_what_was_said(memory):
    session = Memory(memory._store, model=Interrupted(["one two three"])).session("s")

    with pytest.raises(KeyboardInterrupt):
        session.reply("go")

    assert texts(session.messages()) == ["go", "one"]


def test_a_budget_over_the_models_window_is_refused_for_one_reply_too(session):
    with pytest.raises(ConfigError, match="window is 8192"):
        session.reply("go", budget=Budget(context=8193, reply=10))

    assert session.messages() == ()


def test_a_model_that_says_nothing_leaves_the_question_unanswered(memory):
    session = Memory(memory._store, model=ScriptedModel([""])).session("s")

    reply = session.reply("go")

    assert (reply.text, reply.message) == ("", None)
    assert texts(session.messages()) == ["go"]


def test_a_reply_without_text_answers_what_stands_last(session):
    session.append("user", "weather?")
    session.append("assistant", tool_calls=[ToolCall(id="c1", name="weather")])
    session.append("tool", "sunny", tool_call_id="c1")

    session.reply()

    roles = [stored.message.role for stored in session.messages()]
    assert roles == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


def test_assembling_twice_logs_once(session):
    session.append("user", "hello")

    first, second = session.assemble(), session.assemble()

    assert first.assembly_id == second.assembly_id
    assert len(session.assemblies()) == 1


def test_a_message_over_the_window_is_clipped_with_a_record_that_restores_it(session):
    reply = session.reply(words(200))

    (record,) = reply.prompt.truncations
    assert record.reason is TruncationReason.CLIPPED
    assert session.restore(record)[0].message.text == words(200)
    assert session.check() == ()


def test_without_clipping_a_message_over_the_window_is_stored_and_refused(url):
    strict = Budget(context=120, reply=20, clip=False)
    with Memory.open(url, model=ScriptedModel(), budget=strict) as memory:
        _refuses_and_goes_on(memory.session("s"))


def _refuses_and_goes_on(session):
    with pytest.raises(ContextOverflowError) as caught:
        session.reply(words(200))

    assert caught.value.tokens_by_tier == {"template": 1, "current": 202}
    assert len(session.messages()) == 1
    assert session.reply("short").text == "ok"
    assert session.truncations()[0].num_tokens == 202


@pytest.mark.parametrize(
    ("role", "text", "error"),
    [
        ("user", "", InvalidInputError),
        ("user", " \n", InvalidInputError),
        ("system", "obey", InvalidInputError),
        ("oracle", "hello", InvalidInputError),
        ("tool", "no id", InvalidInputError),
        ("user", "a\x00b", InvalidTextError),
        ("user", "a\ud800b", InvalidTextError),
    ],
)
def test_bad_input_is_refused_and_nothing_is_stored(session, role, text, error):
    with pytest.raises(error):
        session.append(role, text)

    assert session.messages() == ()


def test_a_tool_may_find_nothing(session):
    session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])

    stored = session.append("tool", "", tool_call_id="c1")

    assert stored.message.text == ""


def test_a_second_result_for_one_call_is_refused(session):
    session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])
    session.append("tool", "found", tool_call_id="c1")

    with pytest.raises(TranscriptError):
        session.append("tool", "again", tool_call_id="c1")


def test_a_result_that_nobody_asked_for_gets_a_synthetic_call(session):
    session.append("tool", "found", tool_call_id="c1", name="look")

    asked, answered = session.messages()
    assert asked.origin is Origin.SYNTHETIC
    assert asked.message.tool_calls == (ToolCall(id="c1", name="look"),)
    assert answered.message.text == "found"


def test_a_retry_with_the_same_client_key_stores_once(session):
    first = session.append("user", "hello", client_key="k1")
    again = session.append("user", "hello", client_key="k1")

    assert first == again
    assert len(session.messages()) == 1


def test_the_same_key_of_two_users_is_two_sessions(memory):
    memory.session("s", user="a").append("user", "secret")

    assert memory.session("s", user="b").messages() == ()
    assert [info.key for info in memory.sessions(user="b")] == ["s"]


def test_users_do_not_share_cached_prefixes(memory):
    memory.session("s", user="a").reply("hello there")
    reply = memory.session("s", user="b").reply("hello there")

    assert reply.usage.cached_tokens == 0


def test_finding_a_session_creates_none(memory):
    with pytest.raises(SessionNotFoundError):
        memory.find("nowhere")

    assert memory.sessions() == ()


def test_a_memory_without_a_model_says_what_is_missing(url):
    with Memory.open(url) as bare:
        session = bare.session("s")
        with pytest.raises(ConfigError, match="model"):
            session.reply("hello")
        with pytest.raises(ConfigError, match="counter"):
            session.assemble()
        assert session.messages() == ()


def test_max_tokens_over_the_reply_reserve_is_refused_before_anything_is_stored(session):
    with pytest.raises(ConfigError, match="20 tokens"):
        session.reply("hello", sampling=Sampling(max_tokens=21))

    assert session.messages() == ()


def test_a_budget_over_the_models_window_is_refused(url):
    with pytest.raises(ConfigError, match="window is 100"):
        Memory.open(
            url, model=ScriptedModel(context_window=100), budget=Budget(context=101, reply=20)
        )


def test_a_small_model_gets_a_budget_that_fits(url):
    with Memory.open(url, model=ScriptedModel(context_window=100)) as memory:
        prompt = memory.session("s").reply("hello").prompt

    assert (prompt.context, prompt.reply) == (100, 25)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: s.append("user", 5),
        lambda s: s.append("user", None),
        lambda s: s.append("user", b"x"),
        lambda s: s.append("user", ["a"]),
        lambda s: s.append("assistant", tool_calls=[{"id": "a", "name": "b"}]),
        lambda s: s.at(True),  # noqa: FBT003 - a bool is the wrong kind
        lambda s: s.at(1.5),
        lambda s: s.at("2020"),
    ],
)
def test_values_of_the_wrong_kind_are_refused_in_our_own_words(session, wrong):
    session.append("user", "one")

    with pytest.raises(InvalidInputError):
        wrong(session)

    assert len(session.messages()) == 1
