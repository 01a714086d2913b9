"""Sessions that are longer than their window, and what they are after a restart."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentmem.config import Budget
from agentmem.context import PinTask, Policy
from agentmem.memory import Memory
from agentmem.protocols import Hit
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import PrefixBreak, Tier
from tests.builders import words


def test_pins_are_in_every_prompt_however_far_the_window_slides(session):
    session.pin("role", "you are a travel agent")
    session.pin("limit", "never exceed 500 EUR")
    for number in range(30):
        reply = session.reply(words(10, f"n{number}"))
        assert "you are a travel agent never exceed 500 EUR" in reply.prompt.text

    assert session.truncations() != ()
    assert session.check() == ()


def test_each_message_is_named_once_when_it_leaves_the_window(session):
    for number in range(30):
        session.reply(words(10, f"n{number}"))

    named = [p for r in session.truncations() for p in range(r.first, r.last + 1)]
    shown = session.assemble().layout[-1]
    assert named == list(range(1, named[-1] + 1))
    assert shown.last == 60


def test_the_prompt_goes_on_with_the_same_bytes_after_a_restart(url, memory, session):
    for number in range(12):
        session.reply(words(10, f"n{number}"))
    before = session.assemble()
    memory.close()

    with Memory.open(url, counter=WordCounter(), budget=Budget(context=120, reply=20)) as again:
        after = again.find("trip", user="u42").assemble()

    assert after.token_ids == before.token_ids
    assert after.assembly_id == before.assembly_id


def test_another_budget_has_a_window_of_its_own(session):
    for number in range(12):
        session.reply(words(10, f"n{number}"))

    small = session.assemble(budget=Budget(context=60, reply=20))
    wide = session.assemble(budget=Budget(context=4000, reply=20))

    assert small.num_tokens <= 40
    assert wide.truncations == ()
    assert wide.layout[0].first == 1
    assert session.check() == ()


@pytest.mark.slow
def test_a_long_history_that_was_never_assembled_is_read_from_its_end_only(session):
    """64 messages a page: of 500 messages most are named in one record, and not counted."""
    for number in range(250):
        session.append("user", words(10, f"n{number}"))
        session.append("assistant", words(10))

    prompt = session.assemble()

    record = prompt.truncations[0]
    assert (record.first, record.num_tokens) == (1, None)
    assert prompt.tokens_by_tier[Tier.RECENT] > 0
    assert session.check() == ()


@pytest.mark.slow
def test_a_long_session_is_summed_up_and_the_summary_outlives_a_restart(url):
    budget = Budget(context=400, reply=20)
    with Memory.open(url, model=ScriptedModel(), budget=budget) as memory:
        session = memory.session("s")
        for number in range(60):
            session.reply(f"Room {number} costs {number} EUR. {words(12, f'n{number}')}")
        before = session.assemble()
        assert session.check() == ()
        assert session.summaries() != ()
    with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
        after = memory.find("s").assemble()

    assert before.tokens_by_tier[Tier.SUMMARY] > 0
    assert after.token_ids == before.token_ids


def test_why_a_window_is_new_is_told(session):
    session.append("user", "hello")

    assert session.assemble().reuse.broken_by is PrefixBreak.FIRST
    assert (
        session.assemble(budget=Budget(context=90, reply=20)).reuse.broken_by is PrefixBreak.BUDGET
    )


def test_folding_in_a_quiet_moment_leaves_less_for_the_next_reply(session):
    for number in range(6):
        session.reply(words(10, f"n{number}"))
    full = session.assemble()

    compacted = session.compact()

    assert full.truncations == ()
    assert compacted.num_tokens < full.num_tokens
    assert session.reply("next").prompt.truncations == ()
    assert session.check() == ()


def test_two_who_assemble_at_once_log_each_truncation_once(url):
    """The second one's log has gone on under it, so it looks again."""
    budget = Budget(context=120, reply=20)
    with Memory.open(url, model=ScriptedModel(), budget=budget) as memory:
        session = memory.session("s")
        for number in range(20):
            session.append("user", words(10, f"n{number}"))
        with ThreadPoolExecutor(4) as pool:
            prompts = list(pool.map(lambda _: session.assemble(), range(8)))

        named = [p for r in session.truncations() for p in range(r.first, r.last + 1)]
        assert len(named) == len(set(named))
        assert len({prompt.prompt_hash for prompt in prompts}) == 1
        assert session.check() == ()


@pytest.mark.slow
def test_many_threads_on_one_session_all_get_their_prompts(url):
    budget = Budget(context=120, reply=20)
    with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")

        def talk(number):
            for turn in range(8):
                session.append("user", words(8, f"t{number}n{turn}"))
                session.assemble()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(talk, range(8)))

        assert session.branch.head == 64
        assert session.check() == ()


def test_the_task_may_be_pinned_as_it_is_said(url):
    policy = Policy(auto_pin=PinTask())
    with Memory.open(url, model=ScriptedModel(), policy=policy) as memory:
        session = memory.session("s")
        session.append("user", "Find a hotel under 100 EUR.")
        session.append("user", "In Lisbon.")

        assert [(p.key, p.text) for p in session.pins()] == [
            ("task", "Find a hotel under 100 EUR.")
        ]


@pytest.mark.slow
def test_what_was_recalled_is_kept_in_its_place_over_a_restart(url):
    budget, policy = Budget(context=400, reply=20), Policy(keep_recalled=True)
    with Memory.open(url, model=ScriptedModel(), budget=budget, policy=policy) as memory:
        session = memory.session("s")
        for number in range(40):
            session.reply(words(10, f"n{number}"))
        hits = [Hit(stored=stored, score=1.0) for stored in session.messages(1, 2)]
        first = session.reply("do you remember", hits=hits).prompt
        assert "n0 n0" in first.text
        before = session.reply("and then").prompt
    with Memory.open(url, counter=WordCounter(), budget=budget, policy=policy) as memory:
        session = memory.find("s")
        session.append("user", "go on")
        after = session.assemble()
        assert session.check() == ()

    assert before.reuse.broken_by is after.reuse.broken_by is None
    assert "n0 n0" in after.text


class DeletingSummarizer:
    """Has a message deleted while it sums up what it has read of it."""

    author = "deleting"

    def __init__(self, delete):
        self.delete = delete
        self.read = []

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - as the protocol has it
        self.read.append([passage.text for passage in passages])
        if len(self.read) == 1:
            self.delete()
        return " ".join(passage.text.split()[0] for passage in passages[:6])


@pytest.mark.parametrize("inherit", ["main", "all", "summary"])
def test_what_is_deleted_while_it_is_summed_up_is_in_no_summary(url, inherit):
    summarizer = DeletingSummarizer(lambda: session.delete_message(1))
    policy, budget = Policy(summarizer=summarizer), Budget(context=400, reply=20)
    with Memory.open(url, counter=WordCounter(), budget=budget, policy=policy) as memory:
        session = memory.session("s")
        session.append("user", f"secret {words(40)}")
        for number in range(12):
            session.append("user", words(20, f"n{number}"))
        branch = session if inherit == "main" else session.subtask("t", inherit=inherit)
        branch.append("user", words(200, "late"))

        prompt = branch.assemble()

        assert any("secret" in text for text in summarizer.read[0])
        assert len(summarizer.read) > 1
        assert prompt.summaries
        assert "secret" not in prompt.text
    assert b"secret" not in Path(url.removeprefix("sqlite:///")).read_bytes()
