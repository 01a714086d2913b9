"""What a subtask hands back is kept, also as a result for a call that has one by then."""

import pytest

from agentmem import Budget, InvalidInputError, Memory, ToolCall
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import BranchState, Origin
from tests.faults.legal import faults


@pytest.fixture
def memory():
    with Memory.open("sqlite://", model=ScriptedModel()) as opened:
        yield opened


@pytest.fixture
def session(memory):
    opened = memory.session("s")
    opened.append("user", "Book for 6")
    opened.append("assistant", tool_calls=[ToolCall(id="Q", name="book")])
    return opened


def shown(branch):
    messages = branch.assemble().messages
    assert faults(messages) == []
    return [(message.role.value, message.text) for message in messages]


def heading(call, tool="book"):
    return f"[result of the call {call}, written by the tool {tool}, not by the user]"


def test_a_result_for_a_call_that_was_answered_meanwhile_is_a_later_message(session):
    with session.subtask("k") as task:
        task.append("user", "look")
        task.promote("important finding")
        task.promote("92 EUR", tool_call_id="Q")
        session.append("tool", "real", tool_call_id="Q")

    assert task.branch.state is BranchState.ENDED
    assert session.messages()[-1].origin is Origin.PROMOTED
    assert shown(session)[2:] == [
        ("tool", "real"),
        ("assistant", "important finding"),
        ("user", f"{heading('Q')}\n> 92 EUR"),
    ]
    assert session.check() == ()


@pytest.mark.parametrize("is_shown", [False, True])
def test_it_is_one_that_came_late_itself(session, is_shown):
    task = session.subtask("k")
    task.promote("92 EUR", tool_call_id="Q")
    session.append("user", "still there?")
    if is_shown:
        session.assemble()
    late = session.append("tool", "real", tool_call_id="Q")
    session.append("assistant", "booked")

    task.end()

    assert late.origin is (Origin.LATE if is_shown else Origin.REPLACES)
    assert shown(session)[-1] == ("user", f"{heading('Q')}\n> 92 EUR")
    assert session.check() == ()


def test_two_results_for_one_call_are_both_kept(session):
    with session.subtask("k") as task:
        task.promote("first", tool_call_id="Q")
        task.promote("second", tool_call_id="Q")

    assert shown(session)[2:] == [("tool", "first"), ("user", f"{heading('Q')}\n> second")]


def test_two_subtasks_may_answer_one_call(session):
    tasks = [session.subtask(name) for name in "ab"]
    for task in tasks:
        task.promote(f"from {task.branch.name}", tool_call_id="Q")
        task.end()

    assert shown(session)[2:] == [("tool", "from a"), ("user", f"{heading('Q')}\n> from b")]


def test_a_second_result_does_not_part_the_round_that_is_open(session):
    session.append("tool", "real", tool_call_id="Q")
    calls = [ToolCall(id=one, name="pay") for one in "AB"]
    session.append("assistant", tool_calls=calls)
    with session.subtask("k") as task:
        task.promote("again", tool_call_id="Q")
    session.assemble()
    session.append("tool", "b", tool_call_id="B")
    session.append("tool", "a", tool_call_id="A")

    texts = [text for _, text in shown(session)]
    assert texts[3:6] == ["", "a", "b"]
    assert f"{heading('Q')}\n> again" in texts[6:]


def test_a_call_that_was_never_made_is_named_where_others_wait(session):
    with session.subtask("k") as task:
        task.promote("important finding")
        task.promote("boo", tool_call_id="ghost")
    session.append("tool", "real", tool_call_id="Q")

    assert ("tool", "real") in shown(session)
    assert ("user", f"{heading('ghost', 'tool')}\n> boo") in shown(session)
    assert session.check() == ()


def test_a_call_that_was_never_made_is_put_before_its_result_where_none_waits(session):
    session.append("tool", "real", tool_call_id="Q")
    with session.subtask("k") as task:
        task.promote("boo", tool_call_id="ghost")

    made, result = session.messages()[-2:]
    assert (made.origin, made.message.tool_calls[0].id) == (Origin.SYNTHETIC, "ghost")
    assert result.origin is Origin.PROMOTED
    assert shown(session)[-1] == ("tool", "boo")


def test_a_subtask_of_a_subtask_hands_back_a_second_result(session):
    with session.subtask("outer") as outer:
        outer.append("user", "go")
        outer.append("assistant", tool_calls=[ToolCall(id="I", name="look")])
        with outer.subtask("inner") as inner:
            inner.promote("from inside", tool_call_id="I")
            outer.append("tool", "real", tool_call_id="I")
        assert shown(outer)[-1] == ("user", f"{heading('I', 'look')}\n> from inside")


def test_a_resumed_subtask_ends_too(session):
    branch_id = session.subtask("k").branch.id
    session.append("tool", "real", tool_call_id="Q")
    task = session.resume_subtask(branch_id)
    task.promote("again", tool_call_id="Q")
    task.end()

    assert shown(session)[-1] == ("user", f"{heading('Q')}\n> again")


def test_a_second_result_is_exported_and_comes_back(memory, session, tmp_path):
    with session.subtask("k") as task:
        task.promote("first", tool_call_id="Q")
        task.promote("second", tool_call_id="Q")
    text = session.assemble().text
    memory.export(tmp_path / "all.jsonl")
    with Memory.open("sqlite://", counter=WordCounter()) as other:
        other.load(tmp_path / "all.jsonl")
        assert other.session("s").assemble().text == text


@pytest.mark.slow
def test_a_deleted_second_result_leaves_a_legal_prompt(session):
    with session.subtask("k") as task:
        task.promote("first", tool_call_id="Q")
        task.promote("my secret", tool_call_id="Q")
    session.assemble()
    session.delete_message(4)

    assert shown(session)[2:] == [("tool", "first")]
    assert session.check() == ()


def test_the_window_may_slide_between_a_call_and_its_second_result():
    budget = Budget(context=140, reply=20, summary=0.3)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "Book for 6")
        session.append("assistant", tool_calls=[ToolCall(id="Q", name="book")])
        task = session.subtask("k")
        session.append("tool", "real", tool_call_id="Q")
        for number in range(14):
            session.append("user", f"question {number} about trains and boats")
            session.append("assistant", f"answer {number} about trains and boats")
            if number in {3, 6}:
                task.promote("again", tool_call_id="Q")
                task.end()
                task = session.subtask("k")
            shown(session)
        assert session.check() == ()


@pytest.mark.parametrize("text", ["", " ", "\n"])
def test_nothing_is_handed_back_as_a_text(session, text):
    with session.subtask("k") as task, pytest.raises(InvalidInputError, match="blank"):
        task.promote(text)
    assert session.branch.head == 2


@pytest.mark.parametrize("wrong", ["", 5, b"Q", ["Q"]])
def test_a_result_of_no_call_is_refused_at_once(session, wrong):
    with session.subtask("k") as task:
        task.promote("important finding")
        with pytest.raises(InvalidInputError, match="tool_call_id"):
            task.promote("x", tool_call_id=wrong)

    assert session.messages()[-1].message.text == "important finding"


def test_an_empty_result_is_a_result(session):
    with session.subtask("k") as task:
        task.promote("", tool_call_id="Q")

    assert session.messages()[-1].message.tool_call_id == "Q"
    assert faults(session.assemble().messages) == []
