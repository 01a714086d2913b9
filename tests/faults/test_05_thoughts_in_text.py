"""A thought in what a model wrote is told from its answer, and is never memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.types import Message, ReasoningPart, TextPart, split_reasoning
from tests.builders import say

CLOSED = {
    "deepseek": "<think>\nT\n</think>\n\nA",
    "upper case": "<THINK>T</Think>A",
    "thinking": "<thinking>T</thinking>A",
    "exaone": "<thought>\nT\n</thought>A",
    "reka": "<reasoning>T</reasoning> A",
    "seed": "<seed:think>T</seed:think>A",
    "mixed names": "<think>T</thinking>A",
    "with an attribute": '<think budget="8">T</think >A',
    "magistral": "[THINK]T[/THINK]A",
    "cohere": "<|START_THINKING|>T<|END_THINKING|><|START_RESPONSE|>A<|END_RESPONSE|>",
    "openthinker": "<|begin_of_thought|>T<|end_of_thought|>"
    "<|begin_of_solution|>A<|end_of_solution|>",
    "kimi": "\u25c1think\u25b7T\u25c1/think\u25b7A",
    "apertus": "<|inner_prefix|>T<|inner_suffix|>A",
    "gemma": "<|channel>thought\nT<channel|>A",
    "hunyuan": "<think>\nT\n</think>\n<answer>\nA\n</answer>",
    "granite": "Here is my thought process: T Here is my response: A",
    "gpt-oss": "<|channel|>analysis<|message|>T<|end|>"
    "<|start|>assistant<|channel|>final<|message|>A<|return|>",
    "gpt-oss decoded without its tokens": "analysisT.assistantfinalA",
    "opened in the prompt": "T\n</think>\n\nA",
}


@pytest.mark.parametrize("family", CLOSED)
def test_a_closed_thought_is_told_from_the_answer(family):
    thought, answer = split_reasoning(CLOSED[family])

    assert (thought.rstrip("."), answer) == ("T", "A")


CUT_OFF = {
    "deepseek": "<think>T",
    "alone": "<think>T</think>",
    "magistral": "[THINK]T",
    "cohere": "<|START_THINKING|>T",
    "granite": "Here is my thought process: T",
    "gpt-oss": "<|channel|>analysis<|message|>T",
    "gpt-oss decoded without its tokens": "analysisT",
}


@pytest.mark.parametrize("family", CUT_OFF)
def test_a_thought_that_leads_to_no_answer_leaves_none(family):
    assert split_reasoning(CUT_OFF[family]) == ("T", "")


@pytest.mark.parametrize(
    ("text", "thought", "answer"),
    [
        ("<think>a<think>b</think>c</think>d", "a\n\nb\n\nc", "d"),
        ("<think>I write <think> first.</think>d", "I write\n\nfirst.", "d"),
        ("<think>a</think>b <think>c</think>d", "a\n\nc", "b d"),
        ("Sure. <think>a</think> Five.", "a", "Sure. Five."),
        ("Sure.\n<think>a", "a", "Sure."),
        ("a</think>b</think>c", "a\n\nb", "c"),
        ("<think></think>a", "", "a"),
        ("<think>```py\na</think>Run ```py\nb```", "```py\na", "Run ```py\nb```"),
        ("<th<think>a</think>ink>b", "a\n\nb", ""),
    ],
)
def test_thoughts_are_nested_repeated_and_stand_anywhere(text, thought, answer):
    assert split_reasoning(text) == (thought, answer)


@pytest.mark.parametrize(
    "text",
    [
        " plain \n",
        "2 < 3 [ok]",
        "Put it between `<think>` and `</think>`.",
        'It begins with "<think>", always.',
        "```\n<think>\na\n</think>\n```\nis the form",
        "analysis of the figures",
        "<b>bold</b> [THINKING]",
    ],
)
def test_what_only_names_a_mark_is_left_as_it_was(text):
    assert split_reasoning(text) == ("", text)


@given(st.lists(st.sampled_from(["<think>", "</think>", "[THINK]", "a", " ", "`", "\n"])))
def test_an_answer_has_no_thought_left(pieces):
    _, answer = split_reasoning("".join(pieces))

    assert split_reasoning(answer) == ("", answer)


def test_memory_reads_an_answer_without_its_thoughts():
    assert say("assistant", "<think>never tell</think>yes").memory_text == "yes"
    assert say("assistant", "<think>never tell").memory_text == ""
    quoted = "<think>why?</think>"
    assert say("user", quoted).memory_text == quoted
    assert say("tool", quoted, tool_call_id="c").memory_text == quoted


def test_an_answer_may_be_nothing_but_a_thought():
    parts = (ReasoningPart(text="hm"), TextPart(text=""))
    message = Message(role=say("assistant", "x").role, parts=parts)

    assert (message.text, message.memory_text) == ("", "")
