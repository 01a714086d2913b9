"""The bytes of an image stay in the store: a short text stands for them wherever a model reads."""

import base64

import pytest

from agentmem import Budget, ImagePart, Memory, Message, TextPart
from agentmem.retrieval import HybridRetriever
from agentmem.testing import WordCounter
from tests.builders import say
from tests.inference.kinds import kind_counter

PNG = base64.b64encode(bytes(range(256)) * 240).decode()
URL = f"data:image/png;base64,{PNG}"
COUNTERS = {"words": WordCounter, "letters": lambda: kind_counter("chatml")}


def image(url, alt=""):
    return Message(role="user", parts=(TextPart(text="Look:"), ImagePart(url=url, alt=alt)))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "image/png, 61 kB"),
        (f"  DATA:IMAGE/PNG;BASE64,{PNG}", "image/png, 61 kB"),
        (f"data:image/svg+xml;charset=utf-8;base64,{PNG}", "image/svg+xml, 61 kB"),
        (f"data:;base64,{PNG}", "data, 61 kB"),
        (f"data:,{'x' * 2000}", "data, 2 kB"),
        ("data:text/plain,hi%20there", "text/plain, 8 bytes"),
        ("data:image/svg+xml,%3Csvg/%3E", "image/svg+xml, 6 bytes"),
        (f"data:image/png;base64,{'QUJD' * 500_000}", "image/png, 1.5 MB"),
        (f"data:image/png;base64,{PNG[:80]}\n{PNG[80:]}", "image/png, 61 kB"),
        ("data:image/png;base64,QQ%3D%3D", "image/png, 1 bytes"),
        ("data:image/png;base64,", "image/png, 0 bytes"),
        ("data:image/png", "image/png, 0 bytes"),
        ("data:", "data, 0 bytes"),
        (f"data:{'x' * 3000}/y;base64,QQ==", "data, 1 bytes"),
        ("https://example.org/cat.png", "https://example.org/cat.png"),
        ("database.png", "database.png"),
    ],
)
def test_a_text_model_is_shown_the_kind_and_the_size(url, shown):
    assert image(url).text == f"Look:\n[image: {shown}]"


def test_a_description_is_shown_rather_than_the_url():
    assert image(URL, "a red bicycle").text == "Look:\n[image: a red bicycle]"
    assert image(URL, "  ").text == "Look:\n[image: image/png, 61 kB]"
    assert image(URL, URL).text == "Look:\n[image: image/png, 61 kB]"


def test_a_long_url_is_cut_and_says_so():
    url = f"https://example.org/cat.png?signature={'0f' * 3000}"
    text = image(url).text
    assert text.endswith("... (6038 characters)]")
    assert len(text) < 600
    # Some clients send the base64 alone.
    assert len(image(PNG).text) < 600


def test_memory_uses_no_base64_that_stands_in_a_text():
    shot = f'{{"ok": true, "screenshot": "{URL}"}} ![shot]({URL}) and data:text/plain;base64,QQ=='
    message = say("tool", shot, tool_call_id="c1")
    assert message.text == shot
    assert message.memory_text == (
        '{"ok": true, "screenshot": "[image/png, 61 kB]"} ![shot]([image/png, 61 kB]) and '
        "data:text/plain;base64,QQ=="
    )
    assert say("user", "base64, as in data: is a word").memory_text.startswith("base64, as in")


@pytest.mark.parametrize("counter", COUNTERS)
@pytest.mark.parametrize("alt", ["", URL])
def test_an_image_costs_a_line_and_its_bytes_stay_in_the_store(counter, alt):
    with Memory.open("sqlite://", counter=COUNTERS[counter](), budget=Budget()) as memory:
        session = memory.session("s")
        session.append("user", "first")
        session.append("assistant", "ok")
        session.append("user", [TextPart(text="My passport"), ImagePart(url=URL, alt=alt)])
        prompt = session.assemble()
        assert "[image: image/png, 61 kB]" in prompt.text
        assert "first" in prompt.text
        assert prompt.num_tokens < 200
        assert session.messages()[2].message.parts[1] == ImagePart(url=URL, alt=alt)


@pytest.mark.slow
def test_text_beside_an_image_is_found_and_recalled():
    with Memory.open(
        "sqlite://", counter=WordCounter(), budget=Budget(context=300, reply=50),
        retriever=HybridRetriever(),
    ) as memory:  # fmt: skip
        session = memory.session("s")
        text = TextPart(text="My passport number is K1234567.")
        session.append("user", [text, ImagePart(url=URL)])
        session.append("assistant", "Noted.")
        for number in range(40):
            session.append("user", f"Tell me about trains, part {number}, and some more of it.")
            session.append("assistant", "Trains are long and heavy.")
            session.assemble()
        session.append("user", "What is my passport number?")
        memory.wait_for_index()
        assert session.search("passport number")[0].stored.position == 1
        prompt = session.assemble(query="passport number")
        assert 1 in [hit.position for hit in prompt.recalled]
        assert PNG[:40] not in prompt.text


def test_summaries_and_search_see_no_base64_of_a_tool():
    with Memory.open("sqlite://", counter=WordCounter(), retriever=HybridRetriever()) as memory:
        session = memory.session("s")
        session.append("user", f"The screenshot is {URL} and the price 92 EUR.")
        session.append("assistant", "ok")
        memory.wait_for_index()
        (hit, *_) = session.search("price EUR")
        assert hit.stored.message.text.endswith("92 EUR.")
        assert not session.search(PNG[:60])
