import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import InvalidInputError, InvalidTextError
from agentmem.types import (
    ImagePart,
    Message,
    ReasoningPart,
    Role,
    Scope,
    TextPart,
    ToolCall,
    Usage,
    check_text,
    common_prefix,
    repair_text,
)
from tests.builders import say

any_text = st.text(st.characters(exclude_categories=()))


@given(any_text)
def test_repaired_text_is_storable_and_storable_text_is_left_alone(text):
    repaired = repair_text(text)

    assert check_text("text", repaired) == repaired
    repaired.encode()
    if all(c != "\x00" and not "\ud800" <= c <= "\udfff" for c in text):
        assert repaired == text


def test_two_halves_of_a_pair_are_joined():
    assert repair_text("\ud83d\ude00") == "\U0001f600"
    assert repair_text("a\ud83d b\x00") == "a\ufffd b\ufffd"


def test_the_error_says_where_the_bad_character_stands():
    with pytest.raises(InvalidTextError, match=r"U\+0000\) at index 1") as caught:
        say("user", "a\x00")

    assert caught.value.index == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"name": ""},
        {"id": "a\x00"},
        {"arguments": "\ud800"},
    ],
)
def test_a_tool_call_is_checked_at_the_door(fields):
    with pytest.raises(InvalidInputError):
        ToolCall(**{"id": "c1", "name": "look", **fields})


@pytest.mark.parametrize(
    ("arguments", "parsed"),
    [('{"a": 1}', {"a": 1}), ("[1]", {}), ('{"a": ', {}), ("", {}), ("[" * 100_000, {})],
    ids=["object", "list", "cut", "empty", "deep"],
)
def test_arguments_that_are_no_object_are_an_empty_one(arguments, parsed):
    assert ToolCall(id="c1", name="look", arguments=arguments).parsed_arguments() == parsed


def test_reasoning_is_kept_and_not_shown():
    parts = (ReasoningPart(text="hm"), TextPart(text="yes"), ImagePart(url="u", alt="a cat"))

    assert Message(role=Role.ASSISTANT, parts=parts).text == "yes\n[image: a cat]"


def test_only_an_assistant_calls_tools():
    with pytest.raises(InvalidInputError):
        say("user", "hi", tool_calls=(ToolCall(id="c1", name="look"),))


def test_calls_may_come_without_ids_and_with_the_same_until_they_are_stored():
    calls = (ToolCall(id="c1", name="look"), ToolCall(id="c1", name="touch"), ToolCall(name="go"))

    assert Message(role=Role.ASSISTANT, tool_calls=calls).tool_calls == calls


@pytest.mark.parametrize("name", ["", "x" * 501, "a\x00"])
def test_a_name_has_1_to_500_storable_characters(name):
    with pytest.raises(InvalidInputError):
        Scope(user=name)


@given(st.lists(st.integers(0, 3)), st.lists(st.integers(0, 3)))
def test_the_common_prefix_is_common_and_no_longer_one_is(one, other):
    size = common_prefix(one, other)

    assert one[:size] == other[:size]
    assert one[: size + 1] != other[: size + 1] or size == min(len(one), len(other))


def test_speed_is_counted_after_the_first_token():
    usage = Usage(prompt_tokens=10, cached_tokens=8, completion_tokens=5, ttft_s=1.0, total_s=3.0)

    assert (usage.computed_tokens, usage.tokens_per_s) == (2, 2.0)
