"""Bytes that stand in a text, as tools return screenshots, do not take the window."""

import base64
import json
import textwrap

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types.data_urls import without_data

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


LINES = base64.encodebytes(bytes(range(256)) * 12).decode()
ONE_LINE = LINES.replace("\n", "")


@pytest.mark.parametrize("media", ["image/png", "image\\/png"])
@pytest.mark.parametrize(
    "body",
    [
        LINES.strip(),
        LINES.replace("\n", "\r\n").strip(),
        LINES.replace("\n", " ").strip(),
        LINES.replace("\n", "\r\n\t").strip(),
        json.dumps(LINES.strip())[1:-1],
        ONE_LINE.replace("/", "\\/"),
        "\n" + LINES.strip(),
        "\n".join(textwrap.wrap(ONE_LINE, 64)),
    ],
)
def test_base64_in_lines_or_with_escapes_is_one_stand_in(media, body):
    shown = without_data(f"look data:{media};base64,{body} please tell me")

    assert shown == "look [image/png, 3 kB] please tell me"


@pytest.mark.parametrize("num_bytes", range(60, 120))
def test_the_last_line_goes_with_the_rest_and_words_after_it_stay(num_bytes):
    body = base64.encodebytes(bytes(range(100, 100 + num_bytes))).decode().strip()

    shown = without_data(f"data:image/png;base64,{body}\nlook at this")

    assert shown.startswith("[image/png, ")
    assert shown.endswith("]\nlook at this")
    assert len(shown) < 50
