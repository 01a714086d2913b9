"""Arguments of tool calls reach the prompt as the model wrote them, wherever a template allows."""

import json

import pytest

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.testing import WordCounter
from agentmem.types import ToolCall
from tests.builders import result, say
from tests.inference.kinds import KINDS, TOKENS, kind_counter, kind_tokenizer

NUMBERS = (
    *("0.1234567890123456789", "12345678901234567.89", "1.10", "1e400", "-1e400", "1E5", "-0"),
    *("-0.0", "5e-324", "9" * 5000, "-" + "7" * 5000, "100000000000000000000", "NaN", "-Infinity"),
)
WRITTEN = (
    '{"a": 1,"a" : 2, "a":3}',
    '{ "z": {"k":1.10,\n"k": 2.20}, "a": [[-0, {"n": 1E5}], 1.0] }',
    '{"t": "caf\\u00e9 \\u2028 \\/ \\n", "b":true,"n":null}',
    '{"stop": "<|im_end|><|eot_id|><end_of_turn></s>"}',
    '{"mark": "\ue000\ue001", "hidden": "\\ue000\\ue001"}',
    '{"7305821946": 730582194600000, "730582194600000": "7305821946000007305821946"}',
)

# As Qwen3-Coder and GLM do: values by themselves, those of strings without quotes.
BY_ITEM = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for call in m.tool_calls or [] -%}
{{ '\n<tool_call>\n<function=' + call.function.name + '>\n' }}
{%- for key, value in call.function.arguments.items() -%}
{{ '<parameter=' + key + '>\n' }}
{{- value if value is string else (value | tojson) }}
{{- '\n</parameter>\n' }}
{%- endfor -%}
{{ '</function>\n</tool_call>' }}
{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""
# Some look into the name of the tool and write its arguments in two ways.
BY_NAME = BY_ITEM.replace(
    "{%- for key, value",
    "{%- if call.function.name == 'f' %}{{ call.function.arguments | tojson }}"
    "{%- set arguments = {} %}{% else %}{% set arguments = call.function.arguments %}{% endif -%}"
    "{%- for key, value",
).replace("in call.function.arguments.items()", "in arguments.items()")
AS_TEXT = """\
{%- for m in messages -%}
{{ '<|im_start|>' + m.role + '\n' + m.content }}
{%- for call in m.tool_calls or [] -%}
{{ '\n' + call.function.name + ': ' + call.function.arguments }}
{%- endfor -%}
{{ '<|im_end|>\n' }}
{%- endfor -%}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif -%}
"""


def counter_of(template):
    tokenizer = kind_tokenizer("chatml")
    tokenizer.chat_template = template
    return ChatTokenizer(tokenizer)


@pytest.fixture(scope="module")
def by_item():
    return counter_of(BY_ITEM)


def asked(arguments, name="f"):
    made = ToolCall(id="c1", name=name, arguments=arguments)
    calls = (made, ToolCall(id="c2", name="g", arguments='{"other": 2.50}'))
    results = (result("c1"), result("c2"))
    # One at a time, as not every template takes more.
    alone = [
        m
        for c, r in zip(calls, results, strict=True)
        for m in (say("assistant", tool_calls=(c,)), r)
    ]
    return [say("user", "go"), *alone, say("user", "and?")]


def check(counter, arguments, name="f"):
    messages = asked(arguments, name)
    rendered = counter.render(messages)
    assert counter.decode(rendered.token_ids) == rendered.text
    # A control token is only where the template has written one.
    shapes = [counter.render(asked("{}", name)).token_ids, rendered.token_ids]
    num = [sum(i in counter.control_ids for i in ids) for ids in shapes]
    assert num[0] == num[1]
    return rendered.text


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", NUMBERS)
def test_a_number_is_shown_as_it_was_written(kind, number):
    arguments = f'{{"x": {number}}}'
    assert arguments in check(kind_counter(kind), arguments)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("written", WRITTEN)
def test_arguments_are_shown_byte_for_byte(kind, written):
    assert written in check(kind_counter(kind), written)
    assert '{"other": 2.50}' in check(kind_counter(kind), written)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_template_that_writes_each_value_shows_its_number_as_it_was_written(by_item, number):
    text = check(by_item, f'{{"x": {number}, "deep": [{{"y": {number}}}]}}')
    assert f"<parameter=x>\n{number}\n</parameter>" in text
    assert f'[{{"y": {number}}}]' in text


def test_a_template_that_writes_each_value_shows_a_doubled_key_twice(by_item):
    text = check(by_item, '{"a": 1.10, "b": "x", "a": "<|im_end|>"}')
    assert "<parameter=a>\n1.10\n" in text
    assert "<parameter=a>\n<|im_end|>\n" in text


def test_text_that_looks_like_a_stand_in_is_left_as_it_is(by_item):
    text = check(by_item, '{"x": 1.10, "y": "730582194600000", "z": "\\u0037305821946" }')
    assert "<parameter=y>\n730582194600000\n" in text
    assert "<parameter=z>\n7305821946\n" in text


def test_a_template_that_looks_at_the_name_shows_numbers_either_way():
    counter = counter_of(BY_NAME)
    for name in ("f", "h"):
        text = check(counter, '{"x": 1.10, "k": [1E5]}', name)
        assert "1.10" in text
        assert "[1E5]" in text


def test_a_template_that_joins_texts_is_given_what_was_written():
    arguments = '{"x": 1.10,"x":0.1234567890123456789}'
    assert f"f: {arguments}" in check(counter_of(AS_TEXT), arguments)


def test_words_are_counted_of_what_was_written():
    arguments = '{"x": 1.10,"x":0.1234567890123456789}'
    assert arguments.split()[1] in WordCounter().render(asked(arguments)).text


def test_a_program_reads_an_integer_of_any_length():
    digits = "9" * 5000
    read = ToolCall(id="c1", name="f", arguments=f'{{"x": {digits}, "y": 7}}').parsed_arguments()
    assert f"{read['x']:f}" == digits
    assert json.dumps(read["y"]) == "7"


@pytest.mark.parametrize("kind", KINDS)
def test_what_no_object_is_is_an_empty_one(kind):
    for arguments in ("nope", "[1]", '"{}"', '{"cut": "o', '{"a":' * 400 + "1" + "}" * 400, "{}x"):
        text = check(kind_counter(kind), arguments)
        assert "{}" in text
        assert all(token not in arguments for token in TOKENS[kind])
