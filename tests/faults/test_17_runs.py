"""What leaves the window is summed up, in one range, however little leaves at a time."""

import json
from datetime import UTC, datetime

import pytest

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.context.compaction import SummaryCompactor
from agentmem.memory import Memory
from agentmem.testing import WordCounter
from agentmem.types import BranchId, Summary, Tier, ToolCall
from tests.builders import say, stored, words
from tests.context.replay import Replay


def count(text):
    return len(text.split())


def hidden(prompt):
    """Positions that the prompt neither shows nor sums up."""
    return [p for s in prompt.layout if s.tier is None for p in range(s.first, s.last + 1)]


def in_one_range(prompt):
    """Whether the summaries follow each other without a gap, from the first message on."""
    ends = [0]
    for one in prompt.summaries:
        if one.first != ends[-1] + 1:
            return False
        ends.append(one.last)
    return True


def tool_loop(session, rounds, size=40):
    for number in range(rounds):
        session.append("assistant", tool_calls=[ToolCall(id=f"c{number}", name="look")])
        found = f"Hotel {number} costs {80 + number} EUR. " + words(size, f"r{number}")
        session.append("tool", found, tool_call_id=f"c{number}")
        prompt = session.assemble()
    assert session.check() == ()
    return prompt


@pytest.mark.parametrize(("context", "low_water"), [(512, 1.0), (512, 0.5), (1024, 0.5)])
def test_a_short_first_turn_before_a_tool_loop_is_summed_up_with_it(context, low_water):
    budget = Budget(context=context, reply=context // 8, low_water=low_water, summary=0.3)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "My name is Bob and my budget is 500 EUR.")
        session.append("assistant", "Noted.")
        session.append("user", "Now research hotels in Lisbon.")
        prompt = tool_loop(session, rounds=context // 20)

    assert prompt.summaries[0].first == 1
    assert in_one_range(prompt)
    assert "Bob" in next(m.text for m in prompt.messages if m.text.startswith("Summary"))
    assert any(m.text == "Now research hotels in Lisbon." for m in prompt.messages)


def test_the_same_with_the_default_shares_and_tokenizer():
    from tests.faults.test_08_summary_place import smollm2  # noqa: PLC0415 - imports transformers

    budget = Budget(context=1024, reply=128)
    with Memory.open("sqlite://", counter=smollm2(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "My name is Bob and my budget is 500 EUR.")
        session.append("assistant", "Noted.")
        session.append("user", "Now research hotels in Lisbon.")
        for number in range(24):
            session.append("assistant", tool_calls=[ToolCall(id=f"c{number}", name="look")])
            text = f"Hotel {number} costs {80 + number} EUR. " * 8
            session.append("tool", text, tool_call_id=f"c{number}")
            prompt = session.assemble()

    assert prompt.summaries[0].first == 1
    assert "Bob" in prompt.text


@pytest.mark.slow
@pytest.mark.parametrize(("low_water", "size"), [(1.0, 1), (0.9, 4), (1.0, 12)])
def test_turns_that_leave_one_by_one_are_summed_up_once_they_are_enough(low_water, size):
    budget = Budget(context=500, reply=20, low_water=low_water, summary=0.3, retrieved=0)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        for number in range(120):
            session.append("user", f"Room {number}. {words(size, f'u{number}')}")
            prompt = session.assemble()
            session.append("assistant", f"Noted {number}. {words(size, f'a{number}')}")
            left = sum(
                count(m.message.text) for p in hidden(prompt) for m in session.messages(p, p)
            )
            assert left < 64, "32 tokens are enough, and what leaves next comes to them"
        assert session.check() == ()

    assert prompt.summaries
    assert in_one_range(prompt)


@pytest.mark.slow
def test_a_gap_is_taken_up_after_a_restart_and_in_a_subtask(tmp_path):
    url = f"sqlite:///{tmp_path / 'gap.db'}"
    budget = Budget(context=300, reply=20, low_water=1.0, summary=0.4, retrieved=0)
    for number in range(40):
        with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
            session = memory.session("s")
            session.append("user", f"Room {number}. {words(4, f'u{number}')}")
            session.append("assistant", "Noted it.")
            prompt = session.assemble()
    assert prompt.summaries[0].first == 1
    assert in_one_range(prompt)
    assert len(hidden(prompt)) < 12

    with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
        task = memory.session("s").subtask("t", inherit="all")
        for number in range(40):
            task.append("user", f"Ship {number}. {words(4, f'u{number}')}")
            prompt = task.assemble()
        assert task.check() == ()
    assert in_one_range(prompt)
    assert len(hidden(prompt)) < 12


@pytest.mark.slow
def test_what_a_branch_does_not_inherit_is_never_taken_up():
    budget = Budget(context=300, reply=20, low_water=1.0, summary=0.4, retrieved=0)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "The secret is 500 EUR.")
        with session.subtask("a") as done:
            done.append("user", "x")
            done.promote("We must take 92 EUR.")
        session.append("user", "The other secret is 600 EUR.")
        task = session.subtask("t", inherit="pins")
        for number in range(60):
            task.append("user", f"Room {number}. {words(4, f'u{number}')}")
            prompt = task.assemble()
        assert task.check() == ()

    assert prompt.summaries
    assert "secret" not in prompt.text
    assert all(not (s.first <= 1 <= s.last or s.first <= 3 <= s.last) for s in prompt.summaries)


def test_a_gap_before_an_older_summary_is_closed_by_the_next_slide():
    """As sessions have it whose first turns had left before gaps were taken up."""
    budget = Budget(context=300, reply=20, low_water=0.5, summary=0.4, retrieved=0)
    replay = Replay(budget)
    for number in range(12):
        replay.say(say("user", f"Room {number}. {words(20, f'u{number}')}"))
        prompt = replay.assemble()
    (made,) = prompt.summaries
    cut = Summary(
        branch_id=made.branch_id,
        first=3,
        last=made.last,
        level=0,
        text=made.text,
        author=made.author,
        source_hash="old",
    )
    last = replay.assemblies[-1]
    spans = json.loads(json.dumps([(s.first, s.last) for s in last.layout]))
    assert spans[0] == [1, made.last]
    replay.hide(1, 2, cut)

    for number in range(12, 24):
        replay.say(say("user", f"Room {number}. {words(20, f'u{number}')}"))
        prompt = replay.assemble()

    assert in_one_range(prompt)
    assert hidden(prompt) == []


class Refuses:
    """Sums nothing up until it is told to."""

    author = "late"
    text = ""

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - the contract
        return self.text


def test_what_a_summarizer_could_not_sum_up_is_given_to_it_again():
    summarizer = Refuses()
    budget = Budget(context=300, reply=20, summary=0.4, retrieved=0)
    replay = Replay(budget, policy=Policy(summarizer=summarizer))
    for number in range(14):
        replay.say(say("user", f"Room {number}. {words(20, f'u{number}')}"))
        prompt = replay.assemble()
    assert hidden(prompt)
    summarizer.text = "Rooms."
    for number in range(14, 24):
        replay.say(say("user", f"Room {number}. {words(20, f'u{number}')}"))
        prompt = replay.assemble()

    assert hidden(prompt) == []
    assert replay.check() == ()


def summaries_of(*ranges, size=30):
    return [
        Summary(
            branch_id=BranchId(1),
            first=first,
            last=last,
            level=0,
            text=f"[{first}] user: " + words(size - 2, f"s{first}"),
            author="extractive",
            source_hash="h",
        )
        for first, last in ranges
    ]


@pytest.mark.parametrize(
    ("ranges", "left"),
    [
        (((1, 2), (3, 4), (5, 6)), [(1, 6), (7, 8)]),
        (((1, 2), (3, 4), (6, 6)), [(1, 4), (6, 6), (7, 8)]),
        (((1, 1), (3, 4), (6, 6)), [(1, 1), (3, 4), (6, 8)]),
        (((1, 1), (3, 3), (5, 5)), [(3, 3), (5, 5), (7, 8)]),
    ],
)
def test_a_full_tier_folds_what_stands_side_by_side_before_it_drops_anything(ranges, left):
    class Short:
        author = "short"

        def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - the contract
            return "in short, all of it"

    compactor = SummaryCompactor(Short(), count, 93)

    made = compactor.compact(
        BranchId(1), summaries_of(*ranges), stored(*[say("user", words(40, "n"))] * 2, start=7)
    )

    assert [(s.first, s.last) for s in made] == left


@pytest.mark.slow
def test_the_current_question_is_shown_and_its_range_is_named_once():
    budget = Budget(context=400, reply=20, summary=0.3, retrieved=0)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "My name is Bob.")
        session.append("assistant", "Noted.")
        session.append("user", "Find hotels.")
        prompt = tool_loop(session, rounds=20)
        spans = [(s.first, s.last, s.tier) for s in prompt.layout]
        assert (3, 3, Tier.CURRENT) in spans
        assert prompt.summaries[0].first == 1
        assert prompt.summaries[0].last > 3
        session.append("assistant", "Hotel 7.")
        for number in range(12):
            session.append("user", f"And {number}? " + words(20, f"u{number}"))
            session.append("assistant", words(20, f"a{number}"))
            prompt = session.assemble()
            assert session.check() == ()
    assert hidden(prompt) == []


@pytest.mark.slow
def test_what_is_taken_up_later_has_the_day_of_the_user_s_time_zone():
    budget = Budget(context=300, reply=20, low_water=1.0, summary=0.5, retrieved=0)
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    with Memory.open(
        "sqlite://", counter=WordCounter(), budget=budget, timezone="Pacific/Kiritimati"
    ) as memory:
        session = memory.session("s")
        for number in range(60):
            session.append("user", f"Room {number} a b c", created_at=noon)
            prompt = session.assemble()

    (text,) = (m.text for m in prompt.messages if m.text.startswith("Summary"))
    assert text.count("2026-05-02] user: ") == len(text.split("\n")) - 1
