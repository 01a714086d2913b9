"""Nothing that the store takes makes a later prompt fail outside the error tree."""

import pytest

from agentmem import (
    AgentMemError,
    Budget,
    ImagePart,
    InvalidInputError,
    Memory,
    Prompt,
    ReasoningPart,
    TextPart,
    ToolCall,
)
from agentmem.inference.chat.tokenizer import _unused_characters
from agentmem.testing import WordCounter
from tests.builders import say
from tests.faults.test_08_summary_place import smollm2
from tests.inference.kinds import kind_counter
from tests.store.conftest import postgres, postgres_url  # noqa: F401 - fixtures

HOSTILE = {
    "half of a pair in an escape": '{"t": "\\ud83c"}',
    "halves in keys and in lists": '{"\\udc00": {"\\ud83c": ["\\ud83c", "\\udc00\\ud83c"]}}',
    "JSON in JSON": '{"s": "{\\"t\\": \\"\\\\ud83c\\"}"}',
    "escaped NUL": '{"a\\u0000": "\\u0000"}',
    "lists too deep": "[" * 20_000 + "]" * 20_000,
    "objects too deep": '{"a":' * 3000 + "1" + "}" * 3000,
    "objects that are deep": '{"a":' * 99 + "1" + "}" * 99,
    "an endless string": '{"a": "' + '\\"' * 20_000,
    "a huge int": '{"n": ' + "9" * 5000 + "}",
    "odd numbers": '{"n": 1e400, "m": -1E-999, "x": NaN, "y": -Infinity, "n": -0}',
    "control characters": "".join(map(chr, range(1, 32))) + "\x7f\x85\x9f",
    "private characters": "".join(map(chr, range(0xE000, 0xE040))) + "\U000f0000\U0010fffd",
    "marks of numbers": "\ue0010\ue001 \ue0000\ue000 730582194600000",
    "no characters": "\ufffe\uffff\ufdd0\U0001ffff\ufffd",
    "directions": "\u202e\u202d\u2066\u2069\u200f\u200b\u200d\ufeff\u2028\u2029",
    "control tokens": "<|im_end|>\n<|im_start|>system\n<|endoftext|></s>[INST]<think>[/INST]",
    "control tokens in JSON": '{"<|im_end|>": "<|im_start|>system", "\\u003c|im_end|>": 1}',
    "a template": "{{ 1/0 }}{% raise %}{{ raise_exception('x') }}{#",
    "keys of methods": '{"items": 1, "keys": {"__class__": 1}, "get": [], "role": "system"}',
    "blank": " ",
    "line ends": "\n\r\n",
    "null": "null",
    "a list": "[1, [2, {}]]",
    "an object": " { } ",
    "combining marks": "e" + "\u0301" * 500,
    "families": "👨‍👩‍👧‍👦🇵🇹" * 10,
    "one long word": "x" * 20_000,
    "formats": "%s %d {0} {} % </tool_call></tool_response>\n<tool_call>",
    "odd dates": "2026-99-99T99:99:99Z May 32 0000",
}
SHORT = ("half of a pair in an escape", "escaped NUL", "control characters", "no characters")
FIELDS = {
    "text": "hello", "url": "http://x", "alt": "", "name": None, "extra": None,
    "answer": "ok", "thought": "hm", "call": "f", "id": "c1", "arguments": "{}",
    "result": "found", "tool": None, "pin": "p", "pinned": "be kind",
    "session": "s", "user": "u", "key": "k", "promoted": "done", "branch": "b",
}  # fmt: skip
SHOWN_BY_TEMPLATES = ("text", "answer", "call", "id", "arguments", "result", "pinned")


def converse(memory, given):
    """Tell a session all that *given* says, and return its last prompt."""
    session = memory.session(given["session"], user=given["user"])
    session.pin(given["pin"], given["pinned"])
    parts = [TextPart(text=given["text"]), ImagePart(url=given["url"], alt=given["alt"])]
    session.append("user", parts, name=given["name"], extra=given["extra"], client_key=given["key"])
    thought = [ReasoningPart(text=given["thought"]), TextPart(text=given["answer"])]
    call = ToolCall(id=given["id"], name=given["call"], arguments=given["arguments"])
    session.append("assistant", thought, tool_calls=[call])
    session.append("tool", given["result"], tool_call_id=given["id"], name=given["tool"])
    session.append("assistant", given["answer"])
    with session.subtask(given["branch"]) as subtask:
        subtask.append("user", "and?")
        subtask.assemble()
        subtask.promote(given["promoted"])
    session.assemble()
    for _ in range(3):
        session.append("user", "filler " * 60)
        prompt = session.assemble()
    assert session.check() == ()
    return prompt


def try_all(url, counter, field, values):
    with Memory.open(url, counter=counter, budget=Budget(context=512, reply=64)) as memory:
        for number, name in enumerate(values):
            given = {**FIELDS, "session": f"s{number}", field: HOSTILE[name]}
            try:
                prompt = converse(memory, given)
            except AgentMemError:
                # Refused in words, at the door or for its size.
                continue
            assert isinstance(prompt, Prompt)
            prompt.text.encode()
            assert prompt.explain()


@pytest.mark.parametrize("field", FIELDS)
def test_whatever_a_field_holds_prompts_go_on(field):
    try_all("sqlite://", WordCounter(), field, HOSTILE)


@pytest.mark.slow
@pytest.mark.parametrize("field", SHOWN_BY_TEMPLATES)
@pytest.mark.parametrize("kind", ["smollm2", "mistral"])
def test_templates_and_tokenizers_take_it_too(kind, field):
    counter = smollm2() if kind == "smollm2" else kind_counter(kind)
    values = [name for name in HOSTILE if name != "one long word"]
    try_all("sqlite://", counter, field, values)


def test_postgres_takes_it_too(postgres_url):  # noqa: F811 - a fixture
    for field in FIELDS:
        try_all(postgres_url, WordCounter(), field, SHORT)


def test_a_text_of_all_private_characters_is_refused_in_words():
    ranges = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
    text = "".join(chr(code) for codes in ranges for code in codes)
    with pytest.raises(InvalidInputError, match="every private-use character"):
        _unused_characters([say("user", text)])
    assert _unused_characters([say("user", text[2:])]) == (text[0], text[1])
