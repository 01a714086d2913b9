"""Half of a surrogate pair that JSON hides in an escape never gets out of the store as one."""

import json

import pytest

from agentmem import InvalidInputError, Memory
from agentmem.testing import WordCounter
from agentmem.types import ToolCall, repair_escapes
from tests.builders import result, say
from tests.faults.test_03_argument_numbers import BY_ITEM, counter_of
from tests.inference.kinds import KINDS, kind_counter

HIDDEN = (
    '{"text": "cheers \\ud83c"}',
    '{"text": "\\uDC00 first"}',
    '{"\\ud83c": 1}',
    '{"a": [{"b": ["\\ud83c\\ud83c\\udf89"]}]}',
    '{"a": "\\\\\\ud83c"}',
    '{"inner": "{\\"t\\": \\"\\\\ud83c\\"}"}',
)


def asked(arguments):
    made = ToolCall(id="c1", name="f", arguments=arguments)
    return [say("user", "go"), say("assistant", tool_calls=(made,)), result("c1"), say("user", "?")]


@pytest.mark.parametrize("arguments", HIDDEN)
@pytest.mark.parametrize("kind", KINDS)
def test_a_prompt_shows_the_replacement_character(kind, arguments):
    counter = kind_counter(kind)
    text = counter.render(asked(arguments)).text
    assert repair_escapes(arguments) in text
    text.encode()


@pytest.mark.parametrize("arguments", HIDDEN)
def test_a_template_that_writes_each_value_shows_it_too(arguments):
    counter_of(BY_ITEM).render(asked(arguments)).text.encode()


@pytest.mark.parametrize("arguments", HIDDEN)
def test_a_program_reads_text_that_can_be_encoded(arguments):
    read = asked(arguments)[1].tool_calls[0].parsed_arguments()
    assert read
    json.dumps(read, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ('"\\ud83c\\udf89"', '"\\ud83c\\udf89"'),
        ('"\\ud83c\\ud83c\\udf89"', '"\ufffd\\ud83c\\udf89"'),
        ('"\\\\ud83c"', '"\\\\ud83c"'),
        ('"\\\\\\ud83c"', '"\\\\\ufffd"'),
        ('"\\udf89\\ud83c"', '"\ufffd\ufffd"'),
        ('"\\u00e9\\n"', '"\\u00e9\\n"'),
    ],
)
def test_only_lone_halves_are_replaced(written, shown):
    assert repair_escapes(written) == shown


def test_what_was_written_is_what_is_stored_and_exported(tmp_path):
    said = HIDDEN[0]
    with Memory.open("sqlite://", counter=kind_counter("qwen3")) as memory:
        session = memory.session("s")
        session.append("user", "go")
        session.append("assistant", tool_calls=[ToolCall(id="c1", name="f", arguments=said)])
        session.append("tool", "found", tool_call_id="c1")
        assert "cheers \ufffd" in session.assemble().text
        memory.export(tmp_path / "all.jsonl")
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        memory.load(tmp_path / "all.jsonl")
        session = memory.session("s")
        assert session.messages()[1].message.tool_calls[0].arguments == said
        session.assemble()


@pytest.mark.parametrize("where", ["id", "name", "arguments"])
def test_an_open_half_is_refused_in_every_field_of_a_call(where):
    fields = {"id": "c1", "name": "f", "arguments": "{}", where: "\ud83c"}
    with pytest.raises(InvalidInputError, match="lone surrogate"):
        ToolCall(**fields)
