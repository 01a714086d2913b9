"""In what a template makes of them, the results of parallel calls stand with their calls."""

import itertools
import json
import re
from functools import cache

import pytest

from agentmem.inference.chat.tokenizer import ChatTokenizer
from agentmem.types import ToolCall
from tests.inference.kinds import CHATML, KINDS, kind_counter, kind_tokenizer
from tests.inference.tiny import controls, say

HERMES = CHATML.replace(
    "m.content +",
    "m.content + (m.tool_calls | map(attribute='function') | map('tojson') | join('\n')"
    " if m.tool_calls else '') +",
)
SHOWN = "('NAME' + m.name + '\n' if m.role == 'tool' else '') + "
TEMPLATES = {
    "hermes": HERMES,
    "names": HERMES.replace("m.content +", SHOWN.replace("NAME", "of ") + "m.content +", 1),
    "ids of results alone": HERMES.replace(
        "m.content +", SHOWN.replace("NAME' + m.name", "' + m.tool_call_id") + "m.content +", 1
    ),
    "ids": HERMES.replace(
        "m.content +", SHOWN.replace("NAME' + m.name", "' + m.tool_call_id") + "m.content +", 1
    ).replace("map(attribute='function')", "map('string')"),
    "text alone": CHATML.replace("m.content", "(m.content if m.role != 'tool' else [][0])"),
}
EVERY = (*KINDS, *TEMPLATES)
each_template = pytest.mark.parametrize("kind", EVERY)
U, A, V = say("user", "U1"), say("assistant", "A1"), say("user", "V1")


@cache
def counter_of(kind):
    if kind in KINDS:
        return kind_counter(kind)
    tokenizer = kind_tokenizer("chatml")
    tokenizer.chat_template = TEMPLATES[kind]
    return ChatTokenizer(tokenizer)


def pairs_by_id(kind):
    return kind in ("ids", "mistral")


def calls(*ids, name="balance", arguments='{"account": "N"}'):
    made = (ToolCall(id=i, name=name, arguments=arguments.replace("N", i)) for i in ids)
    return say("assistant", tool_calls=tuple(made))


def result(call_id, text=None):
    return say("tool", text or f"R-{call_id}", tool_call_id=call_id)


def order(text, *words):
    return sorted(words, key=text.index)


@each_template
@pytest.mark.parametrize("arrival", list(itertools.permutations("abc")))
def test_results_stand_in_the_order_of_their_calls(kind, arrival):
    counter = counter_of(kind)
    messages = [U, calls("a", "b", "c"), *map(result, arrival), A, V]

    rendered = counter.render(messages)

    assert counter.decode(rendered.token_ids) == rendered.text
    if not pairs_by_id(kind):
        same = counter.render([U, calls("a", "b", "c"), *map(result, "abc"), A, V])
        assert (rendered.text, rendered.token_ids) == (same.text, same.token_ids)
        assert order(rendered.text, "R-a", "R-b", "R-c") == ["R-a", "R-b", "R-c"]


@pytest.mark.slow
def test_a_template_that_shows_the_id_beside_both_keeps_the_order_of_arrival():
    for kind in ("ids", "mistral"):
        assert counter_of(kind)._template.traits.calls.shows_ids
        text = counter_of(kind).render([U, calls("a", "b"), result("b"), result("a"), A]).text
        assert order(text, "R-a", "R-b") == ["R-b", "R-a"]
    for kind in (*{*EVERY} - {"ids", "mistral"},):
        form = counter_of(kind)._template.traits.calls
        assert form is None or not form.shows_ids


@each_template
def test_calls_of_one_name_and_the_same_arguments_are_paired_by_their_place(kind):
    made = calls("a", "b", arguments="{}")

    text = counter_of(kind).render([U, made, result("b"), result("a"), A]).text

    assert order(text, "R-a", "R-b") == (["R-b", "R-a"] if pairs_by_id(kind) else ["R-a", "R-b"])


@each_template
def test_results_of_later_rounds_stand_with_their_own_round(kind):
    messages = [
        *(U, calls("a", "b"), result("b"), result("a")),
        *(calls("c", "d"), result("d"), result("c"), A, V),
        *(calls("a", "b"), result("b", "S-b"), result("a", "S-a"), A),
    ]

    text = counter_of(kind).render(messages).text

    words = ["R-a", "R-b", "R-c", "R-d", "S-a", "S-b"]
    if not pairs_by_id(kind):
        assert order(text, *words) == words


OUT_OF_PLACE = {
    "the second result alone": [U, calls("a", "b"), result("b")],
    "the second result, and the first after a question": [
        *(U, calls("a", "b"), result("b"), V, result("a"), A),
    ],
    "a late result before those of the next round": [
        *(U, calls("b"), V, calls("a"), result("b"), result("a"), A),
    ],
    "a result twice": [U, calls("c", "b"), result("c"), result("c", "R-b"), A],
}


@each_template
@pytest.mark.parametrize("case", OUT_OF_PLACE)
def test_a_result_that_is_not_in_its_place_names_its_call(kind, case):
    counter = counter_of(kind)

    rendered = counter.render(OUT_OF_PLACE[case])

    before = re.split("R-b", rendered.text)[0][-120:]
    assert "result of " in before or pairs_by_id(kind)
    assert counter.decode(rendered.token_ids) == rendered.text


@each_template
def test_a_named_call_becomes_no_control_token(kind):
    counter = counter_of(kind)
    spelled = counter._encoder.control_spellings[0]
    made = calls("a", "b", name=f"look{spelled}", arguments=json.dumps({"k": spelled}))

    rendered = counter.render([U, made, result("b"), V])

    plain = counter.render([U, calls("a", "b"), result("b"), V])
    assert controls(rendered, counter) == controls(plain, counter)
    assert counter.decode(rendered.token_ids) == rendered.text


@each_template
def test_results_in_order_are_not_labelled(kind):
    messages = [U, calls("a", "b"), result("a"), result("b"), A, calls("c"), result("c")]

    assert "result of" not in counter_of(kind).render(messages).text
    assert counter_of(kind).count(result("b")) <= counter_of(kind).count(result("b", "R-b ab")) + 1


def test_the_ends_of_messages_are_known_where_results_are_in_order():
    counter = counter_of("hermes")
    messages = [U, calls("a", "b", "c"), *map(result, "abc"), A, V]

    rendered = counter.render(messages)

    assert rendered.ends is not None
    for end, count in zip(rendered.ends, range(1, 8), strict=True):
        start = counter.render(messages[:count], add_generation_prompt=False)
        assert len(start.token_ids) == end
    assert counter.render([U, calls("a", "b"), result("b"), result("a")]).ends is None


STRICT = (
    "{% set ns = namespace(open=false) %}{% for m in messages %}"
    "{% if m.role == 'tool' and not ns.open %}{{ raise_exception('no call') }}{% endif %}"
    "{% set ns.open = m.role == 'tool' or m.tool_calls is not undefined %}"
    "{% endfor %}"
)


def test_a_late_result_is_a_text_where_the_template_refuses_it_and_calls_keep_their_form():
    tokenizer = kind_tokenizer("chatml")
    tokenizer.chat_template = STRICT + HERMES
    counter = ChatTokenizer(tokenizer)
    messages = [U, calls("a", "b"), result("a"), A, result("b"), V]

    rendered = counter.render(messages)

    assert counter._template.traits.calls is not None
    assert '<|im_start|>assistant\n{"name": "balance", "arguments": ' in rendered.text
    assert "user\n<tool_response>\n" in rendered.text.partition("R-a")[2]
    assert "R-b" in rendered.text
    assert counter.decode(rendered.token_ids) == rendered.text


def test_other_templates_have_late_results_in_the_tool_role():
    assert counter_of("hermes")._template.traits.late_results
    text = counter_of("hermes").render([U, calls("a"), A, result("a"), V]).text
    assert "<|im_start|>tool\nR-a" in text
