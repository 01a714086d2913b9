"""Bytes that stand in a text, as tools return screenshots, do not take the window."""

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.testing import ScriptedModel, WordCounter

DATA = "data:image/png;base64," + "iVBORw0KGgo" * 800


@pytest.fixture
def session():
    budget = Budget(context=400, reply=50)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        yield memory.session("s")


def say(session, role, text):
    if role == "tool":
        session.append("user", "Look at it.")
        session.append("assistant", tool_calls=[ToolCall(id="c1", name="screenshot")])
        return session.append("tool", text, tool_call_id="c1")
    if role == "assistant":
        session.append("user", "Draw it.")
    return session.append(role, text)


@pytest.mark.parametrize("role", ["user", "tool", "assistant"])
@pytest.mark.parametrize(
    "text", [f"Here: {DATA} The total is 77 EUR.", f"![pic]({DATA}) total", f'{{"png": "{DATA}"}}']
)
def test_a_prompt_shows_type_and_size_and_the_store_keeps_the_bytes(session, role, text):
    stored = say(session, role, text)

    prompt = session.assemble()

    assert "iVBORw0KGgo" not in prompt.text
    assert "[image/png, 7 kB]" in prompt.text
    assert session.messages()[stored.position - 1].message.text == text
    assert session.assemble().token_ids == prompt.token_ids
    assert session.check() == ()


def test_a_long_text_with_a_picture_is_clipped_by_its_words(session):
    session.append("user", f"begin {'word ' * 900}{DATA} end")

    prompt = session.assemble()

    assert prompt.num_tokens <= prompt.context - prompt.reply
    assert "begin" in prompt.text
    assert "end" in prompt.text
    assert "iVBORw0KGgo" not in prompt.text
    assert session.assemble().token_ids == prompt.token_ids


def test_an_answer_with_a_picture_goes_on_from_its_question():
    model = ScriptedModel([f"It is {DATA}."])
    with Memory.open("sqlite://", model=model) as memory:
        session = memory.session("s")
        reply = session.reply("Draw it.")

        assert DATA in reply.text
        assert "iVBORw0KGgo" not in session.assemble().text
