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
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import Origin, Role, Tier, ToolCall
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


def test_pins_are_in_every_prompt_however_far_the_window_slides(session):
    session.pin("role", "you are a travel agent")
    session.pin("limit", "never exceed 500 EUR")
    for number in range(30):
        reply = session.reply(words(10, f"n{number}"))
        assert "you are a travel agent never exceed 500 EUR" in reply.prompt.text

    assert session.truncations() != ()
    assert session.check() == ()


def test_each_message_is_named_once_when_it_leaves_the_window(session):
    for number in range(30):
        session.reply(words(10, f"n{number}"))

    named = [p for r in session.truncations() for p in range(r.first, r.last + 1)]
    shown = session.assemble().layout[-1]
    assert named == list(range(1, named[-1] + 1))
    assert shown.last == 60


def test_the_prompt_goes_on_with_the_same_bytes_after_a_restart(url, memory, session):
    for number in range(12):
        session.reply(words(10, f"n{number}"))
    before = session.assemble()
    memory.close()

    with Memory.open(url, counter=WordCounter(), budget=Budget(context=120, reply=20)) as again:
        after = again.find("trip", user="u42").assemble()

    assert after.token_ids == before.token_ids
    assert after.assembly_id == before.assembly_id


def test_assembling_twice_logs_once(session):
    session.append("user", "hello")

    first, second = session.assemble(), session.assemble()

    assert first.assembly_id == second.assembly_id
    assert len(session.assemblies()) == 1


def test_a_message_over_the_window_is_stored_and_refused_with_the_numbers(session):
    with pytest.raises(ContextOverflowError) as caught:
        session.reply(words(200))

    assert caught.value.tokens_by_tier == {"template": 1, "current": 202}
    assert len(session.messages()) == 1
    assert session.reply("short").text == "ok"
    assert session.truncations()[0].num_tokens == 202


def test_another_budget_has_a_window_of_its_own(session):
    for number in range(12):
        session.reply(words(10, f"n{number}"))

    small = session.assemble(budget=Budget(context=60, reply=20))
    wide = session.assemble(budget=Budget(context=4000, reply=20))

    assert small.num_tokens <= 40
    assert wide.truncations == ()
    assert wide.layout[0].first == 1
    assert session.check() == ()


def test_a_long_history_that_was_never_assembled_is_read_from_its_end_only(session):
    """64 messages a page: of 500 messages most are named in one record, and not counted."""
    for number in range(250):
        session.append("user", words(10, f"n{number}"))
        session.append("assistant", words(10))

    prompt = session.assemble()

    record = prompt.truncations[0]
    assert (record.first, record.num_tokens) == (1, None)
    assert prompt.tokens_by_tier[Tier.RECENT] > 0
    assert session.check() == ()


@pytest.mark.parametrize(
    ("role", "text", "error"),
    [
        ("user", "", InvalidInputError),
        ("user", " \n", InvalidInputError),
        ("assistant", "", InvalidInputError),
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
