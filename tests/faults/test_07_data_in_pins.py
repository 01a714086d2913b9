"""Bytes of a picture are in no pin that is set by itself, and in no summary of a call."""

import base64
import json

import pytest

from agentmem import ImagePart, Memory, Policy, TextPart, ToolCall
from agentmem.context import ExtractiveSummarizer, PinTask
from agentmem.context.compaction import SummaryCompactor
from agentmem.context.summary_lines import passages_of_messages
from agentmem.testing import WordCounter
from agentmem.types import BranchId
from tests.builders import say, stored, words

PNG = base64.b64encode(bytes(range(256)) * 120).decode()
URL = f"data:image/png;base64,{PNG}"


@pytest.mark.parametrize(
    ("content", "pinned"),
    [
        (f"see {URL} and pay 77 EUR", "see [image/png, 31 kB] and pay 77 EUR"),
        (f"![pic]({URL}) pay", "![pic]([image/png, 31 kB]) pay"),
        (
            [TextPart(text=f"see {URL}"), ImagePart(url=URL)],
            "see [image/png, 31 kB]\n[image: image/png, 31 kB]",
        ),
    ],
)
def test_a_task_is_pinned_without_the_bytes_in_it(content, pinned):
    policy = Policy(auto_pin=PinTask())
    with Memory.open("sqlite://", counter=WordCounter(), policy=policy) as memory:
        session = memory.session("s")
        session.append("user", content)
        (pin,) = session.pins()

        assert pin.text == pinned
        assert PNG[:40] not in session.assemble().text


def test_a_long_task_with_a_picture_is_pinned_by_its_words():
    policy = Policy(auto_pin=PinTask(max_chars=400))
    with Memory.open("sqlite://", counter=WordCounter(), policy=policy) as memory:
        session = memory.session("s")
        session.append("user", f"begin {'word ' * 300} {URL} end")
        (pin,) = session.pins()

    assert pin.text.startswith("begin")
    assert pin.text.endswith("[image/png, 31 kB] end")


@pytest.mark.parametrize(
    "arguments",
    [
        json.dumps({"img": URL, "x": 1}),
        json.dumps({"deep": [{"img": f"a {URL} b"}], "x": 1}),
        f'{{"img": "{URL}", "x": 1, "cut o',
    ],
)
def test_a_summarizer_is_given_calls_without_bytes(arguments):
    call = ToolCall(id="c", name="snap", arguments=arguments)
    messages = stored(say("assistant", "I take it now.", tool_calls=(call,)))

    (passage,) = passages_of_messages(messages, None, {})

    assert PNG[:40] not in passage.text
    assert "[image/png, 31 kB]" in passage.text
    assert '"x": 1' in passage.text
    assert messages[0].message.tool_calls[0].arguments == arguments


def test_a_summary_quotes_a_call_without_bytes():
    short = f"data:image/png;base64,{PNG[:330]}"
    call = ToolCall(id="c", name="snap", arguments=json.dumps({"img": short}))
    said = say("assistant", "I must take it now.", tool_calls=(call,))
    compactor = SummaryCompactor(ExtractiveSummarizer(), lambda text: len(text.split()), 300)

    (made,) = compactor.compact(BranchId(1), (), stored(said, say("user", words(60))))

    assert '(calls snap {"img": "[image/png, 247 bytes]"}) I must take it now.' in made.text
