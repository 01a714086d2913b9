"""Late results that are edited or deleted, and questions that are deleted before an answer."""

import pytest

from agentmem import Budget, InvalidInputError, Memory, Policy, ToolCall
from agentmem.errors import TranscriptError
from agentmem.testing import ScriptedModel
from agentmem.types import Origin
from tests.faults.legal import faults

CLOSED = "[no result was recorded for this call]"


@pytest.fixture
def session():
    with Memory.open("sqlite://", model=ScriptedModel()) as memory:
        yield memory.session("s")


def come_late(session, *, is_seen=False):
    session.append("user", "go")
    session.append("assistant", tool_calls=[ToolCall(id="A", name="t")])
    session.append("user", "hm")
    if is_seen:
        session.assemble()
    return session.append("tool", "late A", tool_call_id="A")


def shown(session):
    prompt = session.assemble()
    assert faults(prompt.messages) == []
    return [(str(message.role), message.text) for message in prompt.messages]


def test_an_edited_late_result_takes_the_place_that_no_prompt_has_shown(session):
    late = come_late(session)

    edited = session.edit(late.position, "corrected")

    assert edited.origin is Origin.REPLACES
    assert ("tool", "corrected") in shown(session)


def test_on_a_line_that_branches_off_a_late_result_takes_its_place_too(session):
    late = come_late(session)
    session.branch(at=late.position - 1)

    assert session.append("tool", "another", tool_call_id="A").origin is Origin.REPLACES
    assert shown(session)[2] == ("tool", "another")


@pytest.mark.parametrize("is_seen", [False, True])
def test_a_deleted_late_result_leaves_no_turn(session, is_seen):
    late = come_late(session, is_seen=is_seen)

    session.delete_message(late.position)

    assert shown(session) == [("user", "go"), ("assistant", ""), ("tool", CLOSED), ("user", "hm")]
    assert session.check() == ()


def test_a_deleted_question_is_not_asked(session):
    session.reply("one")
    session.append("user", "two")

    session.delete_message(3)

    assert shown(session) == [("user", "one"), ("assistant", "ok")]
    with pytest.raises(TranscriptError, match="message 2 has answered"):
        session.reply()
    assert session.check() == ()


def test_where_all_is_deleted_nothing_has_been_said(session):
    session.append("user", "one")
    session.delete_message(1)

    for call in (session.assemble, session.reply):
        with pytest.raises(InvalidInputError, match="there is no message to "):
            call()
    assert session.reply("two").prompt.messages[-1].text == "two"


def test_a_deleted_question_behind_a_window_that_has_left_all_else_keeps_its_place():
    policy = Policy(summarizer=None)
    budget = Budget(context=60, reply=10, retrieved=0, summary=0)
    with Memory.open("sqlite://", model=ScriptedModel(), policy=policy, budget=budget) as memory:
        session = memory.session("s")
        for number in range(10):
            session.append("user", f"question {number} " + "word " * 20)
            session.append("assistant", "answer " * 10)
            session.assemble()
        session.append("user", "last " + "word " * 35)
        session.assemble()
        session.delete_message(session.branch.head)

        assert shown(session) == [("user", "[deleted]")]
        assert session.check() == ()
