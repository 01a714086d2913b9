"""A prompt begins with a user's message, whoever spoke first."""

import pytest

from agentmem import Memory
from agentmem.config import Budget
from agentmem.testing import WordCounter
from agentmem.types import Role, ToolCall, common_prefix
from tests.faults.legal import faults


@pytest.fixture
def session():
    budget = Budget(context=200, reply=20)
    return Memory.open("sqlite://", counter=WordCounter(), budget=budget).session("s")


def first_role(prompt):
    return next(m.role for m in prompt.messages if m.role is not Role.SYSTEM)


@pytest.mark.parametrize("pins", [0, 1])
def test_a_greeting_stands_behind_an_opening(session, pins):
    if pins:
        session.pin("role", "Be kind.")
    session.append("assistant", "Hello, how can I help?")
    session.append("user", "Book a hotel")

    prompt = session.assemble()

    assert first_role(prompt) is Role.USER
    assert "Hello, how can I help?" in prompt.text
    assert faults(prompt.messages) == []


def test_a_call_that_nobody_asked_for_stands_behind_an_opening(session):
    session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])
    session.append("tool", "found", tool_call_id="c1")

    assert first_role(session.assemble()) is Role.USER


@pytest.mark.parametrize("inherit", ["pins", "summary"])
def test_what_an_earlier_subtask_promoted_stands_behind_an_opening(session, inherit):
    session.append("user", "Compare")
    with session.subtask("one") as one:
        one.append("user", "work")
        one.promote("Hotel Verde costs 92 EUR.")
    two = session.subtask("two", inherit=inherit)
    two.append("user", "And now?")

    prompt = two.assemble()

    assert first_role(prompt) is Role.USER
    assert "Hotel Verde costs 92 EUR." in prompt.text


def test_the_prefix_holds_behind_an_opening_and_is_never_overstated(session):
    session.append("assistant", "Hello, how can I help?")
    last = None
    for i in range(30):
        session.append("user", f"question {i} about trains and hotels")
        prompt = session.assemble()
        assert first_role(prompt) is Role.USER
        if last is not None:
            real = common_prefix(last.token_ids, prompt.token_ids)
            assert prompt.reuse.common_tokens <= real
        last = prompt
        session.append("assistant", f"answer {i} about trains")
    assert session.check() == ()
