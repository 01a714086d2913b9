import pytest

from agentmem.config import Budget
from agentmem.context.draft import OPENING
from agentmem.errors import ConflictError, InvalidInputError, SessionNotFoundError
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import BranchState, Origin, Role, Span, Tier, ToolCall, TruncationReason
from tests.builders import words


def texts(messages):
    return [stored.message.text for stored in messages]


@pytest.fixture
def session(memory):
    session = memory.session("trip")
    session.pin("role", "you are a travel agent")
    session.reply("find a hotel")
    return session


def test_a_subtask_shares_the_prefix_of_its_parent(session, model):
    parent = session.assemble()

    with session.subtask("compare") as task:
        reply = task.reply("which is cheapest")

    assert reply.usage.cached_tokens == len(model.requests[0].token_ids)
    assert reply.prompt.messages[: len(parent.messages)] == parent.messages


def test_only_what_was_promoted_goes_back(session):
    with session.subtask("compare") as task:
        task.append("tool", "a long list", tool_call_id="c1")
        task.reply("which is cheapest")
        task.promote("Hotel Lisboa costs 92 EUR.")

    assert texts(session.messages()) == ["find a hotel", "ok", "Hotel Lisboa costs 92 EUR."]
    assert session.messages()[-1].origin is Origin.PROMOTED
    assert "a long list" not in session.assemble().text


def test_the_scratch_stays_in_the_store(session):
    with session.subtask("compare") as task:
        task.reply("which is cheapest")

    assert texts(task.messages())[2:] == ["which is cheapest", "ok"]


def test_the_scratch_is_dropped_from_the_cache_and_the_prefix_is_not(session, model):
    with session.subtask("compare") as task:
        task.reply("which is cheapest")
        num_requests = len(model.requests)

    assert len(model.requests) == num_requests - 1


def test_the_scratch_of_every_window_is_dropped_when_the_subtasks_window_slid(session, model):
    """Each slide begins another chain of blocks; none of them may stay behind."""
    before = len(model.requests)

    with session.subtask("long") as task:
        for number in range(12):
            task.reply(words(10, f"n{number}"))

    assert task.truncations() != ()
    assert len(model.requests) == before


def test_a_subtask_that_raises_hands_back_nothing(session):
    task = session.subtask("compare")

    def crash():
        with task:
            task.promote("half an answer")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        crash()

    assert texts(session.messages()) == ["find a hotel", "ok"]
    assert task.branch.state is BranchState.DISCARDED


def test_a_subtask_that_ended_cannot_be_written(session):
    with session.subtask("compare") as task:
        pass

    with pytest.raises(ConflictError):
        task.append("user", "one more thing")


def test_a_subtask_may_be_ended_inside_its_block(session):
    with session.subtask("compare") as task:
        task.promote("done")
        task.end()

    assert texts(session.messages())[-1] == "done"


def test_with_pins_only_the_rest_is_on_record_as_not_inherited(session):
    with session.subtask("compare", inherit="pins") as task:
        prompt = task.reply("which is cheapest").prompt

    assert [message.text for message in prompt.messages] == [
        "you are a travel agent",
        "which is cheapest",
    ]
    (record,) = task.truncations()
    assert (record.first, record.last, record.reason) == (1, 2, TruncationReason.NOT_INHERITED)
    assert task.check() == ()


def test_what_an_earlier_subtask_promoted_is_inherited_with_the_pins(session):
    with session.subtask("compare") as task:
        task.promote("Hotel Lisboa costs 92 EUR.")

    with session.subtask("book", inherit="pins") as task:
        prompt = task.reply("book it").prompt

    assert [message.text for message in prompt.messages[1:]] == [
        OPENING,
        "Hotel Lisboa costs 92 EUR.",
        "book it",
    ]
    assert prompt.layout[0] == Span(first=1, last=2, tier=None)


def test_siblings_do_not_see_each_other(session):
    with session.subtask("one") as one:
        one.reply("scratch of one")
    with session.subtask("two") as two:
        prompt = two.reply("what now").prompt

    assert "scratch" not in prompt.text


def test_a_subtask_of_a_subtask_hands_back_to_its_own_parent(session):
    with session.subtask("outer") as outer:
        with outer.subtask("inner") as inner:
            inner.reply("deep question")
            inner.promote("deep answer")
        outer.promote("answer")

    assert texts(outer.messages())[2:] == ["deep answer"]
    assert texts(session.messages())[2:] == ["answer"]


def test_a_subtask_branches_off_before_an_open_call(session):
    session.append("user", "search please")
    session.append("assistant", tool_calls=[ToolCall(id="c1", name="search")])

    with session.subtask("search") as task:
        assert texts(task.messages()) == ["find a hotel", "ok", "search please"]
        task.promote("three hotels found", tool_call_id="c1")

    last = session.messages()[-1]
    assert (last.message.role, last.message.tool_call_id) == (Role.TOOL, "c1")
    assert last.position == 5


def test_a_subtask_goes_on_with_its_parents_window_after_a_slide(session):
    for number in range(12):
        session.reply(words(10, f"n{number}"))
    parent = session.assemble()

    with session.subtask("compare") as task:
        prompt = task.reply("which").prompt
        assert task.check() == ()

    assert prompt.layout[0] == parent.layout[0]
    assert prompt.messages[1] == parent.messages[1]


@pytest.mark.parametrize(("name", "inherit"), [("", "all"), ("x", "everything")])
def test_a_subtask_needs_a_name_and_a_known_inheritance(session, name, inherit):
    with pytest.raises(InvalidInputError):
        session.subtask(name, inherit=inherit)


def test_a_subtask_may_inherit_a_summary_of_what_was_said(memory):
    wide = Memory(memory._store, model=ScriptedModel(), budget=Budget(context=600, reply=20))
    session = wide.session("long")
    for number in range(3):
        session.reply(f"Room {number} costs {number} EUR. " + words(10, f"n{number}"))

    with session.subtask("book", inherit="summary") as task:
        first = task.reply("book it").prompt
        second = task.reply("and pay").prompt
        assert task.check() == ()

    assert "costs" in first.messages[0].text
    assert [message.text for message in first.messages[1:]] == ["book it"]
    assert first.layout[0].tier is Tier.SUMMARY
    assert second.summaries == first.summaries
    assert task.truncations()[0].reason is TruncationReason.NOT_INHERITED


def test_a_pin_of_a_subtask_is_its_own_unless_it_says_otherwise(session):
    before = session.assemble().prompt_hash

    with session.subtask("book") as task:
        task.pin("role", "you are a booking agent")
        prompt = task.reply("book it").prompt

    assert prompt.messages[0].text == "you are a booking agent"
    assert session.assemble().prompt_hash == before
    with session.subtask("book") as task:
        task.pin("limit", "spend little", scope="session")
    assert [pin.key for pin in session.pins()] == ["role", "limit"]


def test_an_ended_subtask_takes_nothing_more(session):
    task = session.subtask("book")
    task.end()

    for refused in (
        lambda: task.promote("late"),
        lambda: task.subtask("inner"),
        lambda: task.pin("a", "b"),
        lambda: task.unpin("role"),
        lambda: task.undo_pin("role"),
    ):
        with pytest.raises(ConflictError):
            refused()


def test_a_subtask_of_a_killed_process_can_be_taken_up_again(session):
    task = session.subtask("book")
    task.append("user", "book it")
    (main, left) = session.branches()

    again = session.resume_subtask(left.id)

    assert texts(again.messages())[2:] == ["book it"]
    again.discard()
    assert [branch.state for branch in session.branches()] == ["open", "discarded"]
    with pytest.raises(SessionNotFoundError):
        session.resume_subtask(main.id)


def test_a_summary_of_a_summary_covers_no_position_twice_and_none_that_was_not_read(url):
    """Subtasks in subtasks that inherit summaries, with promoted messages in between."""
    budget = Budget(context=420, reply=20)
    with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        for number in range(6):
            session.append("user", f"We pay {number} EUR. {words(10)}")
            if number == 1:
                with session.subtask("early", inherit="pins") as early:
                    early.promote("The museum is closed.")
        for first in ("summary", "pins"):
            with session.subtask("a", inherit=first) as a:
                for number in range(8):
                    a.append("user", f"Room {number} has a view. {words(10)}")
                with a.subtask("b", inherit="summary") as b, b.subtask("c", inherit="summary") as c:
                    c.append("user", "go on")
                    prompt = c.assemble()
                    assert prompt.summaries
                    assert c.check() == ()
                    c.compact()
                    assert c.check() == ()
        assert all(audit.problems == () for audit in session.audit())
