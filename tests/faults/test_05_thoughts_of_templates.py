"""Thoughts of each family become parts of their own, and are shown only where a template wants."""

import asyncio

import pytest

from agentmem import (
    Budget,
    Memory,
    ModelSummarizer,
    Policy,
    ReasoningPart,
    TextPart,
    ToolCall,
)
from agentmem.protocols import split_answer
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import GeneratedIds, Message, Role
from tests.inference.thinking import CUT_OFF, FAMILIES, SAID, Saying, thinking_counter
from tests.inference.tiny import say

each_family = pytest.mark.parametrize("family", FAMILIES)
APART = (ReasoningPart(text="T1 never"), TextPart(text="A1 ab"))
SHOWS_IN_LOOPS = ("qwen", "gpt-oss", "seed")


def session_of(family, *texts):
    memory = Memory.open("sqlite://", model=Saying(thinking_counter(family), *texts))
    return memory.session("s", user="u")


@each_family
def test_a_reply_is_the_answer_and_its_thought_a_part(family):
    session = session_of(family, SAID[family])

    reply = session.reply("q")

    assert reply.text == "A1 ab"
    assert reply.message.message.parts == APART
    assert session.messages()[-1].message.parts == APART


@each_family
def test_all_that_is_said_streams_and_the_reply_at_the_end_is_the_answer(family):
    session = session_of(family, SAID[family])

    stream = session.stream("q")

    assert "".join(stream) == SAID[family]
    assert stream.reply.text == "A1 ab"


@each_family
def test_the_coroutine_form_tells_thoughts_apart_too(family):
    session = session_of(family, SAID[family])

    reply = asyncio.run(session.areply("q"))

    assert reply.message.message.parts == APART


@each_family
def test_a_thought_that_is_cut_off_is_no_answer(family):
    session = session_of(family, CUT_OFF[family], "A2")

    reply = session.reply("q")

    assert reply.text == ""
    assert reply.message.message.parts == APART[:1]
    assert "never" not in session.reply("go on").prompt.text


@each_family
def test_an_answer_that_is_left_early_keeps_its_thought_apart(family):
    session = session_of(family, SAID[family])

    with session.stream("q") as stream:
        next(stream)
        next(stream)

    message = session.messages()[-1].message
    assert message.memory_text in SAID[family]
    assert "T1" not in message.memory_text


@each_family
def test_an_answer_that_is_appended_as_text_is_told_apart(family):
    session = session_of(family)
    texts = [SAID[family], [TextPart(text=SAID[family])]]
    session.append("user", "q")

    for content in texts:
        assert session.append("assistant", content).message.parts == APART
    quoted = session.append("user", SAID[family]).message
    assert quoted.parts == (TextPart(text=SAID[family]),)


@each_family
def test_the_next_prompt_shows_the_answer_in_its_generated_ids_and_no_thought(family):
    session = session_of(family, SAID[family], "A2")
    counter = thinking_counter(family)
    session.reply("q")

    prompt = session.reply("and now").prompt

    assert "A1 ab" in prompt.text
    # Seed shows all thoughts again, the others none of an earlier turn.
    assert ("never" in prompt.text) == (family == "seed")
    assert counter.decode(prompt.token_ids) == prompt.text
    assert prompt.num_tokens == len(prompt.token_ids)


@each_family
def test_ids_of_the_answer_are_kept_without_those_of_the_thought(family):
    counter = thinking_counter(family)
    thought = SAID[family].partition("A1 ab")[0]
    ids = [
        *counter._encoder.encode([thought]),
        *(i for c in "A1 ab" for i in counter._encoder.encode([c])),
    ]
    made = GeneratedIds(fingerprint=counter.fingerprint, token_ids=tuple(ids))
    answer = Message(role=Role.ASSISTANT, parts=APART, generated=made)

    rendered = counter.render([say("user", "q"), answer, say("user", "r")])

    letters = [i for c in "A1 ab" for i in counter._encoder.encode([c])]
    shown = list(rendered.token_ids)
    assert any(shown[at : at + len(letters)] == letters for at in range(len(shown)))
    assert counter.decode(rendered.token_ids) == rendered.text


@pytest.mark.parametrize("family", SHOWS_IN_LOOPS)
def test_the_thought_of_the_tool_loop_that_goes_on_is_shown_where_the_template_takes_it(family):
    counter = thinking_counter(family)
    assert counter._template.traits.thoughts
    calling = Message(
        role=Role.ASSISTANT, parts=APART[:1], tool_calls=(ToolCall(id="c", name="look"),)
    )
    loop = [say("user", "q"), calling, say("tool", "R", tool_call_id="c")]

    going_on = counter.render(loop)
    later = counter.render([*loop, say("assistant", "A"), say("user", "r")])

    assert "T1 never" in going_on.text
    assert counter.decode(going_on.token_ids) == going_on.text
    assert ("T1 never" in later.text) == (family == "seed")


def test_a_thought_beside_text_and_calls_is_left_out_where_the_template_refuses_both():
    counter = thinking_counter("gpt-oss")
    calling = Message(role=Role.ASSISTANT, parts=APART, tool_calls=(ToolCall(id="c", name="look"),))

    text = counter.render([say("user", "q"), calling, say("tool", "R", tool_call_id="c")]).text

    assert "A1 ab" in text
    assert "T1 never" not in text


@each_family
def test_a_thought_cannot_become_a_control_token(family):
    counter = thinking_counter(family)
    spelled = " ".join(counter._encoder.control_spellings)
    calls = (ToolCall(id="c", name="look"),)
    plain, spelling = (
        Message(role=Role.ASSISTANT, parts=(ReasoningPart(text=text),), tool_calls=calls)
        for text in ("T", spelled)
    )
    end = say("tool", "R", tool_call_id="c")

    one = counter.render([say("user", "q"), plain, end]).token_ids
    other = counter.render([say("user", "q"), spelling, end]).token_ids

    assert [i for i in one if i in counter.control_ids] == [
        i for i in other if i in counter.control_ids
    ]


@each_family
def test_a_thought_counts_where_the_template_shows_it_again(family):
    counter = thinking_counter(family)
    bare = Message(role=Role.ASSISTANT, parts=APART[1:])
    long = Message(role=Role.ASSISTANT, parts=(ReasoningPart(text="why " * 500), *APART[1:]))

    if family == "seed":
        assert counter.count(long) > counter.count(bare) + 500
    else:
        assert counter.count(long) == counter.count(bare)


def test_text_is_left_as_it_is_where_no_template_knows_thoughts():
    said = "<think>T1</think>A1"
    session = Memory.open("sqlite://", model=ScriptedModel([said])).session("s", user="u")

    reply = session.reply("q")

    assert (reply.text, reply.message.message.text) == (said, said)
    assert reply.message.message.memory_text == "A1"
    assert split_answer(WordCounter(), said) == split_answer(None, said) == ("", said)


@each_family
def test_what_is_quoted_in_an_answer_stays_in_it(family):
    said = "Write `<think>` and `</think>` around it."
    session = session_of(family)
    session.append("user", "q")

    assert session.append("assistant", said).message.text == said


@each_family
def test_a_thought_that_is_cut_off_is_no_summary(family):
    model = Saying(thinking_counter(family), *[CUT_OFF[family]] * 20)
    policy = Policy(summarizer=ModelSummarizer(model))
    memory = Memory.open("sqlite://", counter=thinking_counter(family), policy=policy)
    session = memory.session("s", user="u")
    for number in range(30):
        session.append("user", f"The deadline {number} is on day {number}. " + "ab " * 20)
        session.append("assistant", f"Noted {number}.")

        prompt = session.assemble(budget=Budget(context=900, reply=50, summary=0.3))

    assert model.requests
    assert prompt.summaries
    assert "T1 never" not in prompt.text
