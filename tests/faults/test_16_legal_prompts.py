"""Each prompt is one that servers take, whatever is stored."""

import asyncio
import random

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.errors import AgentMemError, InvalidInputError, TranscriptError
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import Origin, common_prefix
from tests.faults.legal import faults


@pytest.fixture
def memory():
    with Memory.open("sqlite://", model=ScriptedModel()) as opened:
        yield opened


@pytest.fixture
def session(memory):
    return memory.session("s")


def call(*ids):
    return [ToolCall(id=one, name="look") for one in ids]


@pytest.mark.parametrize("inherit", ["pins", "summary", "all"])
def test_a_handed_back_result_is_legal_in_a_later_subtask(session, inherit):
    session.append("user", "q")
    session.append("assistant", tool_calls=call("c1"))
    with session.subtask("a") as task:
        task.append("user", "work")
        task.promote("The price is 92 EUR.", tool_call_id="c1")
    session.append("assistant", "done")

    later = session.subtask("b", inherit=inherit)
    later.append("user", "x")
    prompt = later.assemble()

    assert faults(prompt.messages, to_answer=True) == []
    deeper = later.subtask("c", inherit=inherit)
    deeper.append("user", "y")
    assert faults(deeper.assemble().messages, to_answer=True) == []
    if inherit == "pins":
        assert prompt.messages[0].text == (
            "[result of the call c1, written by the tool look, not by the user]\n"
            "> The price is 92 EUR."
        )


@pytest.mark.parametrize("stored", [(), ("b",), ("a", "c")])
def test_open_calls_have_a_stand_in_that_is_not_stored(session, stored):
    session.append("user", "q")
    session.append("assistant", tool_calls=call("a", "b", "c"))
    for one in stored:
        session.append("tool", one, tool_call_id=one)

    prompt = session.assemble()

    assert faults(prompt.messages, to_answer=True) == []
    texts = [message.text for message in prompt.messages[2:]]
    assert texts == [one if one in stored else "[no result yet]" for one in "abc"]
    assert session.branch.head == 2 + len(stored)


def test_a_reply_after_a_restart_answers_what_is_stored(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with Memory.open(url, model=ScriptedModel()) as memory:
        session = memory.session("s")
        session.append("user", "q")
        session.append("assistant", tool_calls=call("a", "b"))
        session.append("tool", "found", tool_call_id="b")
    with Memory.open(url, model=ScriptedModel()) as memory:
        session = memory.session("s")
        reply = session.reply()
        assert faults(reply.prompt.messages, to_answer=True) == []
        assert reply.prompt.head == session.branch.head - 1
        closed = session.messages(4, 4)[0]
        assert (closed.origin, closed.message.tool_call_id) == (Origin.SYNTHETIC, "a")
        assert reply.prompt.messages[2].text == closed.message.text
        # The next prompt goes on from the one that was answered.
        after = session.assemble()
        assert common_prefix(reply.prompt.token_ids, after.token_ids) == reply.prompt.num_tokens


def test_the_coroutine_forms_close_open_calls_too(session):
    session.append("user", "q")
    session.append("assistant", tool_calls=call("a"))

    reply = asyncio.run(session.areply())

    assert faults(reply.prompt.messages, to_answer=True) == []
    assert [stored.message.role for stored in session.messages()][2:] == ["tool", "assistant"]


def test_a_reply_to_what_has_its_answer_says_what_to_do(session):
    session.reply("q")

    with pytest.raises(TranscriptError, match=r"regenerate\(\).*|reply\(text\)"):
        session.reply()
    with pytest.raises(TranscriptError):
        session.stream()

    assert session.branch.head == 2


def test_a_reply_goes_on_from_what_a_subtask_handed_back(session):
    session.append("user", "q")
    with session.subtask("t") as task:
        task.promote("found it")

    assert session.reply().text == "ok"


@pytest.mark.parametrize("start", ["empty", "pinned", "subtask"])
def test_a_reply_to_nothing_says_that_nothing_was_said(session, start):
    if start != "empty":
        session.pin("role", "You are a clerk.")
    branch = session.subtask("t", inherit="pins") if start == "subtask" else session

    with pytest.raises(InvalidInputError, match="there is no message to answer"):
        branch.reply()


def test_ids_that_repeat_or_that_no_server_takes_are_shown_as_others(session):
    session.append("user", "q")
    for _ in range(3):
        session.append("assistant", tool_calls=call("same", "an id: of its own!", "x" * 99))
        for one in ("x" * 99, "same", "an id: of its own!"):
            session.append("tool", one, tool_call_id=one)

    prompt = session.assemble()

    assert faults(prompt.messages, to_answer=True) == []
    shown = [c.id for message in prompt.messages for c in message.tool_calls]
    assert all(len(one) <= 40 and " " not in one for one in shown)
    assert shown[0] == "same"
    assert {c.id for one in session.messages() for c in one.message.tool_calls} == {
        *("same", "an id: of its own!", "x" * 99)
    }


@pytest.mark.parametrize("position", [2, 3, 4, 5])
def test_a_deleted_part_of_a_round_leaves_a_legal_prompt(session, position):
    session.append("user", "q")
    session.append("assistant", tool_calls=call("a", "b"))
    session.append("tool", "second", tool_call_id="b")
    session.append("tool", "first", tool_call_id="a")
    session.append("assistant", "done")
    session.append("user", "next")
    session.assemble()
    session.delete_message(position)

    assert faults(session.assemble().messages, to_answer=True) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_random_agents_never_make_an_illegal_prompt(seed):
    rng = random.Random(seed)  # noqa: S311 - the same each time
    budget = Budget(context=rng.choice([90, 200, 2000]), reply=10)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        branches = [memory.session("s")]
        branches[0].append("user", "begin")
        for step in range(60):
            branch = rng.choice(branches)
            try:
                _act(branch, branches, rng, step)
                prompt = branch.assemble()
            except AgentMemError:
                continue
            assert faults(prompt.messages) == []
            assert branch.check() == ()


def _act(branch, branches, rng, step):
    what = rng.choice(["user", "assistant", "calls", "result", "result", "result", "task", "end"])
    if what in ("user", "assistant"):
        branch.append(what, f"{what} {step} " + "word " * rng.randrange(12))
    elif what == "calls":
        ids = rng.sample("abcde", rng.randrange(1, 4))
        branch.append("assistant", rng.choice(["", "well"]), tool_calls=call(*ids))
    elif what == "result":
        branch.append("tool", f"result {step}", tool_call_id=rng.choice("abcde"))
    elif what == "task" and len(branches) < 4:
        inherit = rng.choice(["pins", "summary", "all"])
        branches.append(branch.subtask("t", inherit=inherit))
        branches[-1].append("user", f"work {step}")
    elif what == "end" and len(branches) > 1:
        task = branches.pop()
        task.promote(f"found {step}", tool_call_id=rng.choice([None, *"abc"]))
        task.end()
