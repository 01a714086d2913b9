"""Folding ahead of time: never in anybody's way, and never half done. Gates stand for a model."""

import threading
from pathlib import Path

import pytest

from agentmem.config import Budget
from agentmem.context import ModelSummarizer, Policy
from agentmem.errors import ConfigError
from agentmem.memory import Memory
from agentmem.memory.background_jobs import (
    MAX_FAILURES,
    Background,
    CompactionState,
    CompactionStatus,
)
from agentmem.testing import ScriptedModel, WordCounter
from tests.builders import words

BUDGET = Budget(context=420, reply=20)


class Gated:
    """Says what the passages begin with, once its gate is open."""

    author = "gated"

    def __init__(self):
        self.gate = threading.Event()
        self.asked = threading.Event()
        self.threads = []
        self.answer = None

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - as the protocol has it
        self.threads.append(threading.current_thread())
        self.asked.set()
        assert self.gate.wait(30)
        if self.answer is not None:
            return self.answer(passages)
        return " ".join(passage.text.split()[0] for passage in passages[:6])

    @property
    def num_asked(self):
        return len(self.threads)


@pytest.fixture
def gated():
    summarizer = Gated()
    yield summarizer
    summarizer.gate.set()


@pytest.fixture
def memory(url, gated):
    policy = Policy(summarizer=gated, compact_ahead=0.8)
    with Memory.open(url, counter=WordCounter(), budget=BUDGET, policy=policy) as opened:
        yield opened


def fill(session, turns=16, size=18):
    """Say so much that the window is nearly full, but not quite."""
    for number in range(turns):
        session.append("user", words(size, f"n{number}"))
    return session.assemble()


def test_a_window_that_is_nearly_full_is_folded_while_the_talk_goes_on(memory, gated):
    session = memory.session("s")
    prompt = fill(session)
    assert prompt.truncations == ()
    assert gated.asked.wait(30)
    assert session.compaction_state().status is CompactionStatus.RUNNING

    session.append("user", words(8, "meanwhile"))
    during = session.assemble()
    gated.gate.set()
    assert memory.wait_for_compactions(30)
    after = session.assemble()

    assert during.truncations == ()
    assert "meanwhile" in during.text
    assert gated.num_asked == 1, "the answer is used though the log has gone on"
    assert gated.threads[0] is not threading.current_thread()
    assert [summary.author for summary in after.summaries] == ["gated"]
    assert "meanwhile" in after.text
    assert after.num_tokens < during.num_tokens
    assert session.compaction_state() == CompactionState()
    assert session.check() == ()


def test_a_window_with_room_is_left_alone(memory, gated):
    session = memory.session("s")
    fill(session, turns=6)

    assert memory.wait_for_compactions(0)
    assert session.compaction_state().status is CompactionStatus.IDLE
    assert gated.num_asked == 0


def test_nobody_folds_ahead_unless_asked_to(url, gated):
    with Memory.open(
        url, counter=WordCounter(), budget=BUDGET, policy=Policy(summarizer=gated)
    ) as memory:
        fill(memory.session("s"))

        assert memory.wait_for_compactions(0)
    assert gated.num_asked == 0


def test_a_reply_that_needs_the_room_does_not_wait_for_the_background(memory, gated):
    """The window gets full while a fold runs: both sum up, and one of them is logged."""
    session = memory.session("s")
    fill(session)
    assert gated.asked.wait(30)
    gated.answer = lambda _passages: "quick"
    session.append("user", words(60, "big"))
    foreground = threading.Thread(target=session.assemble)
    foreground.start()
    gated.gate.set()
    foreground.join(30)
    assert memory.wait_for_compactions(30)

    assert session.assemble().summaries
    named = [p for r in session.truncations() for p in range(r.first, r.last + 1)]
    assert len(named) == len(set(named))
    assert session.check() == ()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (lambda _: "  ", "returned an empty summary"),
        (lambda _: None, "TypeError"),
        (lambda _: words(300), "returned 302 tokens, more than"),
        (lambda _: 1 // 0, "ZeroDivisionError"),
    ],
    ids=["empty", "none", "too long", "raises"],
)
def test_a_fold_that_fails_is_told_and_tried_again_a_few_times(memory, gated, answer, reason):
    gated.answer = answer
    gated.gate.set()
    session = memory.session("s")
    fill(session)
    assert memory.wait_for_compactions(30)
    state = session.compaction_state()
    assert (state.status, state.failures) == (CompactionStatus.FAILED, 1)
    assert reason in state.reason

    for _ in range(MAX_FAILURES + 2):
        session.assemble()
        assert memory.wait_for_compactions(30)

    assert session.compaction_state().failures == gated.num_asked == MAX_FAILURES
    assert session.truncations() == (), "nothing has left without a summary"
    gated.answer = None
    assert session.compact().summaries[0].author == "gated"
    assert session.compaction_state() == CompactionState()
    assert session.check() == ()


def test_a_message_that_is_deleted_during_a_fold_is_in_no_summary(memory, gated, url):
    session = memory.session("s")
    session.append("user", f"secret {words(20)}")
    fill(session, turns=15)
    assert gated.asked.wait(30)
    session.delete_message(1)
    gated.gate.set()
    assert memory.wait_for_compactions(30)

    prompt = session.assemble()

    assert gated.num_asked == 2, "what was written of the deleted text is not used"
    assert prompt.summaries
    assert "secret" not in prompt.text
    memory.close()
    assert b"secret" not in Path(url.removeprefix("sqlite:///")).read_bytes()


def test_a_session_that_is_deleted_during_a_fold_leaves_nothing(memory, gated, url):
    fill(memory.session("secret-key"))
    assert gated.asked.wait(30)
    gated.answer = lambda _passages: "secretly"
    memory.delete("secret-key")
    gated.gate.set()
    assert memory.wait_for_compactions(30)

    again = memory.session("secret-key")
    assert again.compaction_state() == CompactionState()
    assert again.summaries() == ()
    memory.close()
    assert b"secretly" not in Path(url.removeprefix("sqlite:///")).read_bytes()


def test_closing_waits_for_a_fold_and_leaves_no_thread(memory, gated):
    session = memory.session("s")
    fill(session)
    fill(memory.session("t"))
    assert gated.asked.wait(30)
    closing = threading.Thread(target=memory.close)
    closing.start()
    gated.gate.set()
    closing.join(30)

    assert not closing.is_alive()
    assert not gated.threads[0].is_alive()
    assert gated.num_asked == 1, "what was waiting is not begun any more"


def test_closing_gives_up_a_fold_that_hangs(memory, gated, url, monkeypatch):
    monkeypatch.setattr("agentmem.memory.background_jobs._PATIENCE_S", 0.01)
    fill(memory.session("s"))
    assert gated.asked.wait(30)

    memory.close()
    gated.gate.set()
    gated.threads[0].join(30)

    with Memory.open(url, counter=WordCounter(), budget=BUDGET) as again:
        assert again.find("s").summaries() == ()
        assert again.find("s").check() == ()


def test_a_subtask_folds_ahead_too(memory, gated):
    gated.gate.set()
    with memory.session("s").subtask("look", inherit="pins") as task:
        fill(task)
        assert memory.wait_for_compactions(30)
        assert task.assemble().summaries[0].author == "gated"
        assert task.check() == ()


def test_a_model_writes_the_summary_while_nobody_waits(url):
    model = ScriptedModel(["the talk in short"] * 4)
    policy = Policy(summarizer=ModelSummarizer(model), compact_ahead=0.8)
    with Memory.open(url, model=model, budget=BUDGET, policy=policy) as memory:
        session = memory.session("s")
        fill(session)
        assert memory.wait_for_compactions(30)

        prompt = session.assemble()

        assert prompt.summaries[0].text == "the talk in short"
        assert prompt.summaries[0].author == model.name
        assert prompt.reuse.broken_by is None, "the fold is in the log, and so is its break"


@pytest.mark.parametrize("mark", [0, -1, 1.1, True, "0.8"])
def test_a_mark_that_is_no_share_is_refused(mark):
    with pytest.raises(ConfigError, match="compact_ahead"):
        Policy(compact_ahead=mark)


def test_the_background_does_each_job_once_and_ends():
    background = Background()
    begun, gate, done = threading.Event(), threading.Event(), []

    def job(name):
        return lambda _is_cancelled: (begun.set(), gate.wait(30), done.append(name))

    background.ask("a", job("a"))
    assert begun.wait(30)
    for name in ("a", "b", "b", "a"):
        background.ask(name, job(name))
    gate.set()

    assert background.wait(30)
    assert done == ["a", "b"]
    assert background._thread is None


def test_a_closed_background_takes_up_nothing():
    background = Background()
    background.close()

    background.ask("a", lambda _is_cancelled: pytest.fail("it was closed"))

    assert background.wait(60)
