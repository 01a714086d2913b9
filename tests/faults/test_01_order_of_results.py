"""Results stand with their calls, in the order of these, whatever order they came in."""

from itertools import permutations

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.context import Policy
from agentmem.testing import WordCounter
from agentmem.types import PrefixBreak, common_prefix
from tests.faults.legal import faults


@pytest.fixture
def session():
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        yield memory.session("s")


def call(*ids):
    return [ToolCall(id=one, name="look", arguments=f'{{"at": "{one}"}}') for one in ids]


def texts(prompt):
    return [message.text for message in prompt.messages if not message.tool_calls]


def test_results_stand_in_the_order_of_their_calls(session):
    session.append("user", "Balance of A and of B?")
    session.append("assistant", tool_calls=call("a", "b"))
    session.append("tool", "12 EUR", tool_call_id="b")
    session.append("tool", "9000 EUR", tool_call_id="a")

    assert texts(session.assemble()) == ["Balance of A and of B?", "9000 EUR", "12 EUR"]
    stored = [one.message.text for one in session.messages()]
    assert stored[2:] == ["12 EUR", "9000 EUR"]


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_each_round_of_a_loop_keeps_its_own_order(session, order):
    session.append("user", "go")
    for number in range(2):
        session.append("assistant", tool_calls=call(*(f"{one}{number}" for one in "abc")))
        for one in order:
            session.append("tool", f"{one}{number}", tool_call_id=f"{one}{number}")
    session.append("assistant", "done")
    session.append("user", "again")

    shown = texts(session.assemble())

    assert shown == ["go", "a0", "b0", "c0", "a1", "b1", "c1", "done", "again"]


@pytest.mark.parametrize("order", list(permutations("abc")))
def test_what_two_prompts_share_is_told_exactly_while_results_come_in(session, order):
    session.append("user", "go")
    session.append("assistant", tool_calls=call("a", "b", "c"))
    before = session.assemble()
    for one in order:
        session.append("tool", f"found {one}", tool_call_id=one)
        prompt = session.assemble()
        real = common_prefix(before.token_ids, prompt.token_ids)
        assert faults(prompt.messages, to_answer=True) == []
        assert prompt.reuse.common_tokens == real
        assert prompt.reuse.broken_by is PrefixBreak.RESULT
        before = prompt
    session.append("assistant", "done")
    assert session.assemble().reuse.broken_by is None
    assert session.check() == ()


@pytest.mark.slow
def test_the_window_slides_over_rounds_whose_results_came_out_of_order():
    budget = Budget(context=120, reply=20, summary=0)
    with Memory.open(
        "sqlite://", counter=WordCounter(), budget=budget, policy=Policy(summarizer=None)
    ) as memory:
        session = memory.session("s")
        session.append("user", "go")
        before = None
        for number in range(30):
            session.append("assistant", tool_calls=call(f"a{number}", f"b{number}"))
            session.append("tool", f"second of {number}", tool_call_id=f"b{number}")
            middle = session.assemble()
            session.append("tool", f"first of {number}", tool_call_id=f"a{number}")
            prompt = session.assemble()
            assert faults(middle.messages, to_answer=True) == []
            assert faults(prompt.messages, to_answer=True) == []
            for one, other in ((before, middle), (middle, prompt)):
                if one is not None:
                    shared = common_prefix(one.token_ids, other.token_ids)
                    assert other.reuse.common_tokens <= shared
            before = prompt
        assert session.check() == ()
