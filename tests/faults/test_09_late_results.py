"""A result that comes after its call was closed is kept, and shown with or after its call."""

import pytest

from agentmem import Budget, InvalidInputError, Memory, Policy, ToolCall
from agentmem.errors import TranscriptError
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import DisplayForm, Origin, TruncationReason, common_prefix
from tests.faults.legal import faults


@pytest.fixture
def memory():
    with Memory.open("sqlite://", model=ScriptedModel()) as opened:
        yield opened


@pytest.fixture
def session(memory):
    return memory.session("s")


def call(*ids):
    return [ToolCall(id=one, name="book") for one in ids]


def shown(prompt):
    assert faults(prompt.messages) == []
    return [(message.role.value, message.text) for message in prompt.messages]


def begin(session, *ids):
    session.append("user", "Book for 6")
    session.append("assistant", tool_calls=call(*ids))


LATE = "[result of the call c1, written by the tool book, not by the user]\n> Order #1 created"
NOW = "[the result of the call c1 came now; it stands with its call]"
"""No prompt ends in what was said between the call and its result."""


def test_a_result_that_no_prompt_has_missed_stands_with_its_call(session):
    begin(session, "c1")
    session.append("user", "quick please")
    late = session.append("tool", "Order #1 created", tool_call_id="c1")

    prompt = session.assemble()

    assert late.origin is Origin.REPLACES
    assert shown(prompt)[1:] == [
        ("assistant", ""),
        ("tool", "Order #1 created"),
        ("user", "quick please"),
    ]
    (record,) = prompt.truncations
    assert (record.first, record.reason) == (3, TruncationReason.REPLACED)
    assert next(span.form for span in prompt.layout if span.first == 3) is DisplayForm.REPLACED
    assert session.check() == ()
    assert [one.position for one in session.messages()] == [1, 2, 3, 4, 5]


def test_a_result_whose_lack_was_shown_is_a_later_message_that_names_the_call(session):
    begin(session, "c1")
    session.append("user", "quick please")
    before = session.assemble()
    late = session.append("tool", "Order #1 created", tool_call_id="c1")

    prompt = session.assemble()

    assert late.origin is Origin.LATE
    assert shown(prompt)[-1] == ("user", LATE)
    assert prompt.reuse.broken_by is None
    assert prompt.reuse.common_tokens == common_prefix(before.token_ids, prompt.token_ids)
    assert session.check() == ()


def test_a_subtask_that_may_have_shown_the_lack_counts_as_a_prompt(session):
    begin(session, "c1")
    session.append("user", "quick please")
    with session.subtask("look") as task:
        task.reply("what now?")

    assert session.append("tool", "Order #1", tool_call_id="c1").origin is Origin.LATE


def test_a_call_has_one_real_result(session):
    begin(session, "c1")
    session.append("user", "quick please")
    session.append("tool", "Order #1 created", tool_call_id="c1")

    with pytest.raises(TranscriptError, match="has its result already"):
        session.append("tool", "Order #2 created", tool_call_id="c1")


@pytest.mark.parametrize("is_shown", [False, True])
def test_a_user_may_break_in_while_two_of_three_calls_run(session, is_shown):
    begin(session, "c1", "c2", "c3")
    session.append("tool", "second", tool_call_id="c2")
    session.append("user", "still there?")
    if is_shown:
        session.assemble()
    session.append("tool", "third", tool_call_id="c3")
    session.append("assistant", "yes")
    session.append("tool", "first", tool_call_id="c1")

    prompt = session.assemble()

    texts = [text for _, text in shown(prompt)]
    assert all(any(word in text for text in texts) for word in ("first", "second", "third"))
    if not is_shown:
        assert texts[:-1] == ["Book for 6", "", "first", "second", "third", "still there?", "yes"]
        assert texts[-1] == NOW
    assert session.check() == ()


def test_a_late_result_while_another_round_is_open_does_not_part_that(session):
    begin(session, "c1")
    session.append("user", "quick please")
    session.assemble()
    session.append("assistant", tool_calls=call("d1", "d2"))
    session.append("tool", "late", tool_call_id="c1")
    session.append("tool", "second", tool_call_id="d2")
    session.assemble()
    session.append("tool", "first", tool_call_id="d1")

    texts = [text for _, text in shown(session.assemble())]

    assert texts[4:7] == ["", "first", "second"]
    assert texts[7].endswith("late")


def test_a_subtask_hands_back_a_result_that_its_parent_did_not_wait_for(session):
    begin(session, "c1")
    task = session.subtask("research")
    task.append("user", "look")
    session.append("user", "still there?")
    session.assemble()
    task.promote("Order #1 created", tool_call_id="c1")
    task.end()

    assert shown(session.assemble())[-1] == ("user", LATE)


def test_what_is_handed_back_as_text_does_not_close_an_open_call(session):
    begin(session, "c1")
    with session.subtask("t") as task:
        task.promote("found it")
    assert faults(session.assemble().messages) == []
    session.append("tool", "the real result", tool_call_id="c1")

    shown_now = shown(session.assemble())[2:]
    assert shown_now == [("tool", "the real result"), ("assistant", "found it"), ("user", NOW)]


def test_a_retry_with_the_same_key_stores_a_late_result_once(session):
    begin(session, "c1")
    session.append("user", "quick please")
    first = session.append("tool", "Order #1", tool_call_id="c1", client_key="k")
    session.assemble()

    again = session.append("tool", "Order #1", tool_call_id="c1", client_key="k")

    assert again == first
    assert session.branch.head == 5


def test_an_answered_late_result_is_answered_again(session):
    begin(session, "c1")
    session.reply("quick please")
    session.append("tool", "Order #1 created", tool_call_id="c1")

    reply = session.reply()

    assert faults(reply.prompt.messages, to_answer=True) == []
    assert reply.prompt.messages[-1].text == LATE


def test_late_results_are_exported_and_come_back(memory, session, tmp_path):
    begin(session, "c1")
    session.append("user", "quick please")
    session.append("tool", "Order #1 created", tool_call_id="c1")
    text = session.assemble().text
    memory.export(tmp_path / "all.jsonl")
    with Memory.open("sqlite://", counter=WordCounter()) as other:
        other.load(tmp_path / "all.jsonl")
        twin = other.session("s")
        assert twin.assemble().text == text
        with pytest.raises(InvalidInputError):
            twin.append("tool", "again", tool_call_id="c1")


def test_a_deleted_late_result_leaves_a_legal_prompt(session):
    begin(session, "c1")
    session.append("user", "quick please")
    session.append("tool", "my secret order", tool_call_id="c1")
    session.assemble()
    session.delete_message(5)

    assert not any("secret" in text for _, text in shown(session.assemble()))
    assert session.check() == ()


def test_an_id_that_is_used_again_has_results_of_its_own(session):
    begin(session, "c1")
    session.append("user", "quick please")
    session.assemble()
    session.append("assistant", tool_calls=call("c1"))
    session.append("tool", "new", tool_call_id="c1")

    prompt = session.assemble()

    assert shown(prompt)[-1] == ("tool", "new")
    with pytest.raises(TranscriptError):
        session.append("tool", "old", tool_call_id="c1")


class Recorder:
    """A summarizer that keeps what it was asked to sum up."""

    author = "recorder"

    def __init__(self):
        self.told = []

    def summarize(self, passages, **_):
        self.told += [passage.text for passage in passages]
        return "they talked about an order"


def test_late_results_leave_the_window_and_are_summed_up_with_what_they_say():
    budget = Budget(context=200, reply=20, summary=0.4)
    recorder = Recorder()
    with Memory.open(
        "sqlite://", counter=WordCounter(), budget=budget, policy=Policy(summarizer=recorder)
    ) as memory:
        session = memory.session("s")
        begin(session, "c1")
        session.append("user", "and quickly please")
        session.append("tool", "The order number is 4711.", tool_call_id="c1")
        for number in range(12):
            assert faults(session.assemble().messages) == []
            session.append("user", f"question {number} about trains and boats and planes")
            session.append("assistant", f"answer {number} about trains and boats and planes")

        assert any("4711" in text for text in recorder.told)
        assert not any("no result was recorded" in text for text in recorder.told)
        assert session.check() == ()
