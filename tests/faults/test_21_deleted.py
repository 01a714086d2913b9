"""Deleted messages leave no turns behind where the transcript is legal without them."""

from dataclasses import replace

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import TruncationReason

SMALL = Budget(context=160, reply=20)


@pytest.fixture
def session():
    with Memory.open("sqlite://", counter=WordCounter(), budget=SMALL) as memory:
        yield memory.session("s")


def shown(line):
    return [(str(message.role), message.text) for message in line.assemble(hits=()).messages]


def talk(session):
    session.append("user", "one")
    session.append("assistant", "uno")
    session.append("user", "two")
    session.append("assistant", tool_calls=[ToolCall(id="a", name="f"), ToolCall(id="b", name="f")])
    session.append("tool", "found a", tool_call_id="a")
    session.append("tool", "found b", tool_call_id="b")
    session.append("assistant", "dos")
    session.append("user", "three")
    session.append("assistant", "tres")


FULL = [
    *(("user", "one"), ("assistant", "uno"), ("user", "two"), ("assistant", "")),
    *(("tool", "found a"), ("tool", "found b"), ("assistant", "dos")),
    *(("user", "three"), ("assistant", "tres")),
]


@pytest.mark.parametrize("is_seen", [False, True])
@pytest.mark.parametrize(
    ("deleted", "left"),
    [
        ((1, 2), FULL[2:]),
        ((2,), FULL[:1] + FULL[2:]),
        ((4, 5, 6), FULL[:3] + FULL[6:]),
        ((3, 4, 5, 6, 7), FULL[:2] + FULL[7:]),
        ((9,), FULL[:8]),
        ((8, 9), FULL[:7]),
        ((1,), [("user", "[deleted]"), *FULL[1:]]),
        ((5,), [*FULL[:4], ("tool", "[deleted]"), *FULL[5:]]),
        ((5, 6), [*FULL[:4], *[("tool", "[deleted]")] * 2, *FULL[6:]]),
        ((4, 5), [*FULL[:3], ("assistant", "[deleted]"), ("tool", "[deleted]"), *FULL[5:]]),
    ],
)
def test_a_prompt_does_without_what_was_deleted_where_it_can(session, deleted, left, is_seen):
    talk(session)
    if is_seen:
        session.assemble(hits=())

    for position in deleted:
        session.delete_message(position)

    assert shown(session) == left
    assert session.check() == ()
    assert len(session.messages()) == 9


def test_a_record_says_that_something_is_deleted(session):
    talk(session)
    session.delete_message(1)
    session.delete_message(2)
    session.assemble(hits=())
    session.assemble(hits=())

    found = [
        (one.first, one.last)
        for one in session.truncations()
        if one.reason is TruncationReason.DELETED
    ]

    assert found in ([(1, 2)], [(1, 1), (2, 2)])


@pytest.mark.slow
def test_what_is_deleted_leaves_a_full_window_as_the_rest_does(session):
    for number in range(60):
        session.append("user", f"question {number}")
        session.append("assistant", f"answer {number}")
        if number % 3 == 1:
            session.delete_message(session.branch.head)
            session.delete_message(session.branch.head - 1)
        prompt = session.assemble(hits=())
        assert prompt.num_tokens <= SMALL.prompt
    session.append("user", "and now")

    assert "[deleted]" not in session.assemble(hits=()).text
    assert session.check() == ()


def test_a_deleted_answer_is_given_anew():
    with Memory.open("sqlite://", model=ScriptedModel(["first", "second"])) as memory:
        session = memory.session("s")
        session.reply("hello")
        session.delete_message(2)

        reply = session.reply()

        assert [message.text for message in reply.prompt.messages] == ["hello"]
        assert reply.text == "second"


def test_a_subtask_and_a_line_do_without_it_too(session):
    talk(session)
    session.delete_message(1)
    session.delete_message(2)
    session.edit(8, "four")

    assert shown(session) == [*FULL[2:7], ("user", "four")]
    with session.subtask("t") as task:
        assert shown(task) == [*FULL[2:7], ("user", "four")]


@pytest.mark.parametrize("size", range(70, 120, 5))
def test_a_deleted_late_result_reads_the_same_after_its_call_has_left_the_window(session, size):
    session.append("user", "look " * 10)
    session.append("assistant", tool_calls=[ToolCall(id="a", name="f")])
    session.append("user", "go on " * 5)  # closes the call
    late = session.append("tool", "found late", tool_call_id="a")
    session.append("assistant", "seen " * 10)
    session.delete_message(late.position)
    # Sliding no further than it must, the window lets go of the call and keeps the rest.
    full = replace(SMALL, low_water=1.0)
    session.assemble(hits=(), budget=full)
    session.append("user", "more " * size)

    first = session.assemble(hits=(), budget=full)
    again = session.assemble(hits=(), budget=full)

    assert again.token_ids == first.token_ids
    assert "deleted" not in first.text
    assert not session.check()
