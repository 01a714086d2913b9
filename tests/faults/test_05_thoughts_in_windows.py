"""Thoughts that a template shows are counted, and are the first to go where there is no room."""

import random

import pytest

from agentmem import Budget, Memory, ReasoningPart, TextPart, ToolCall
from agentmem.types import DisplayForm
from tests.inference.thinking import FAMILIES, thinking_counter

BUDGET = Budget(context=900, reply=100)
SHOWS_IN_LOOPS = ("qwen", "gpt-oss", "seed")
shows_in_loops = pytest.mark.parametrize("family", SHOWS_IN_LOOPS)


def session_of(family):
    return Memory.open("sqlite://", counter=thinking_counter(family)).session("s", user="u")


def think(session, words, number):
    """Think, call a tool, and have its result."""
    thought = ReasoningPart(text=" ".join(f"why{number}" for _ in range(words)))
    call = ToolCall(id=f"c{number}", name="look")
    session.append("assistant", [thought], tool_calls=[call])
    session.append("tool", f"result {number}", tool_call_id=call.id)


@pytest.mark.slow
@shows_in_loops
def test_a_thought_larger_than_the_window_is_left_out_and_on_record(family):
    session = session_of(family)
    session.append("user", "q")
    think(session, 2000, 1)

    prompt = session.assemble(budget=BUDGET)

    assert "why1" not in prompt.text
    assert "result 1" in prompt.text
    assert "clipped" not in prompt.text
    assert [span.form for span in prompt.layout if span.first <= 2 <= span.last] == [
        DisplayForm.CLIPPED
    ]
    assert not session.check()
    assert session.assemble(budget=BUDGET).prompt_hash == prompt.prompt_hash


@shows_in_loops
def test_a_thought_that_fits_is_shown_to_its_tool_loop(family):
    session = session_of(family)
    session.append("user", "q")
    think(session, 10, 1)
    first = session.assemble(budget=BUDGET)
    think(session, 10, 2)

    second = session.assemble(budget=BUDGET)

    assert "why1 why1" in first.text
    assert "why2 why2" in second.text
    assert not second.truncations


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_with_thoughts_of_any_size_are_never_over_the_budget(family):
    rng = random.Random(family)  # noqa: S311 - repeatable
    session = session_of(family)
    for number in range(12):
        session.append("user", f"question {number} " + "ab " * rng.randrange(40))
        for step in range(rng.choice((0, 0, 1, 3))):
            think(session, rng.choice((1, 20, 60, 400)), 10 * number + step)
            assert session.assemble(budget=BUDGET).num_tokens <= BUDGET.prompt
        thought = ReasoningPart(text="hm " * rng.choice((1, 30, 300)))
        session.append("assistant", [thought, TextPart(text=f"answer {number}")])

        prompt = session.assemble(budget=BUDGET)

        assert prompt.num_tokens == len(prompt.token_ids) <= BUDGET.prompt
        assert thinking_counter(family).decode(prompt.token_ids) == prompt.text
    assert not session.check()
