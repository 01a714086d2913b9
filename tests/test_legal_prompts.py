"""The checker of prompts itself: known bad lists give violations, known good ones none."""

from pathlib import Path

import legal
import pytest

from tests.builders import call, result, say

USER = {"role": "user", "content": "q"}
ANSWER = {"role": "assistant", "content": "a"}
SYSTEM = {"role": "system", "content": "s"}


def calls(*ids, content=None):
    made = [
        {"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids
    ]
    return {"role": "assistant", "content": content, "tool_calls": made}


def answered(call_id, content="r"):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


GOOD = {
    "question": [SYSTEM, USER],
    "talk": [USER, ANSWER, USER],
    "calls": [SYSTEM, USER, calls("a", "b"), answered("b"), answered("a", ""), ANSWER, USER],
    "two users": [USER, USER],
    "text after results": [USER, calls("a"), answered("a"), USER],
    "messages": [say("user", "q"), call("a"), result("a")],
}
BAD_FOR_BOTH = {
    "an empty list": [],
    "no results": [USER, calls("a")],
    "one of two results": [USER, calls("a", "b"), answered("a"), USER],
    "a result without its call": [USER, answered("a")],
    "a result too late": [USER, calls("a"), USER, answered("a")],
    "two results of one call": [USER, calls("a"), answered("a"), answered("a")],
    "a result of another call": [USER, calls("a"), answered("b")],
    "ids that repeat in a message": [USER, calls("a", "a"), answered("a"), answered("a")],
}
BAD_FOR_ANTHROPIC = {
    "a system message alone": [SYSTEM],
    "an answer first": [SYSTEM, ANSWER, USER],
    "an answer last": [USER, ANSWER],
    "a blank text": [{"role": "user", "content": " \n"}],
    "an empty answer": [USER, {"role": "assistant", "content": ""}, USER],
    "system text in the middle": [USER, ANSWER, SYSTEM, USER],
    "ids used again later": [USER, calls("a"), answered("a"), calls("a"), answered("a")],
    "an id with a space": [USER, calls("a b"), answered("a b")],
}
BAD_FOR_OPENAI = {
    "no content": [{"role": "user", "content": None}],
    "an unknown role": [{"role": "bot", "content": "q"}],
    "a long id": [USER, calls("a" * 41), answered("a" * 41)],
    "a tool message without an id": [USER, calls("a"), answered("a"), answered(None)],
}
BAD_FOR_MISTRAL = {
    "two users": [USER, USER],
    "an answer first": [ANSWER, USER],
    "a user after results": [USER, calls("abcdefgh1"), answered("abcdefgh1"), USER],
    "short ids": [USER, calls("a"), answered("a")],
    "a second system message": [SYSTEM, SYSTEM, USER],
    "calls without results": [USER, calls("abcdefgh1"), ANSWER],
}


@pytest.mark.parametrize("name", GOOD)
def test_a_legal_list_has_no_violation(name):
    assert legal.violations(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD_FOR_BOTH)
def test_a_list_that_no_api_takes_is_told_by_both(name):
    assert legal.openai(BAD_FOR_BOTH[name]) != []
    assert legal.anthropic(BAD_FOR_BOTH[name]) != []


@pytest.mark.parametrize("name", BAD_FOR_ANTHROPIC)
def test_what_only_anthropic_refuses_is_told_by_it_alone(name):
    assert legal.anthropic(BAD_FOR_ANTHROPIC[name]) != []
    assert legal.openai(BAD_FOR_ANTHROPIC[name]) == []


@pytest.mark.parametrize("name", BAD_FOR_OPENAI)
def test_what_openai_refuses_is_told(name):
    assert legal.openai(BAD_FOR_OPENAI[name]) != []


@pytest.mark.parametrize("name", BAD_FOR_MISTRAL)
def test_what_a_mistral_template_refuses_is_told(name):
    assert legal.mistral(BAD_FOR_MISTRAL[name]) != []


def test_a_list_may_end_in_an_answer_where_none_is_asked():
    assert legal.anthropic([USER, ANSWER], answer=False) == []


def test_results_behind_text_of_their_turn_are_out_of_place():
    found = legal.anthropic([USER, calls("a", "b"), answered("a"), USER, answered("b")])

    assert any("before the text" in words for words in found)


def test_a_llama_template_takes_one_call_at_a_time_and_one_system_message():
    assert legal.llama([SYSTEM, USER, calls("a"), answered("a")]) == []
    assert legal.llama([USER, calls("a", "b"), answered("a"), answered("b")]) != []
    assert legal.llama([USER, SYSTEM]) != []


def test_a_gemma_template_takes_users_and_answers_in_turns():
    assert legal.gemma([USER, ANSWER, USER]) == []
    assert legal.gemma([SYSTEM, USER]) != []
    assert legal.gemma([USER, calls("a"), answered("a")]) != []


def test_the_checker_imports_nothing_of_the_package():
    source = Path(legal.__file__).read_text()

    assert "import agentmem" not in source
    assert "from agentmem" not in source
