"""The same state gives the same bytes, however often a prompt is made of it."""

import random
from dataclasses import replace

import pytest

from agentmem import Budget, Memory, Policy, ToolCall
from agentmem.context import DiscardOldResults, PinTask
from agentmem.errors import ContextOverflowError
from agentmem.protocols import Hit
from agentmem.retrieval import HybridRetriever
from agentmem.testing import WordCounter
from agentmem.types import Tier
from tests.builders import say, words
from tests.context.replay import Replay

VOCABULARY = ("hotel", "lisbon", "train", "porto", "beach", "price", "date", "room", "wine")

POLICIES = {
    "default": Policy(),
    "no summaries": Policy(summarizer=None),
    "kept": Policy(keep_recalled=True),
    "other sessions": Policy(recall_sessions=True),
    "kept, other sessions": Policy(keep_recalled=True, recall_sessions=True),
    "stubs and a pinned task": Policy(discardable=DiscardOldResults(turns=1), auto_pin=PinTask()),
}


def seeded(number):
    return random.Random(number)  # noqa: S311 - repeatable


def some_words(rng, most):
    return " ".join(rng.choice(VOCABULARY) for _ in range(rng.randrange(1, most)))


def opened(path, policy, budget, **more):
    return Memory.open(
        f"sqlite:///{path}",
        counter=WordCounter(),
        retriever=HybridRetriever(),
        budget=budget,
        policy=policy,
        **more,
    )


def say_something(rng, session, number):
    """Append a question, and often a tool loop that may be longer than the window."""
    session.append("user", some_words(rng, 9))
    if rng.random() < 0.2:
        call = ToolCall(id=f"c{number}", name="look", arguments='{"for": "wine"}')
        session.append("assistant", tool_calls=[call])
        session.append("tool", some_words(rng, rng.choice([9, 9, 60, 400])), tool_call_id=call.id)


def twice(session):
    """Assemble twice; return both, or two times the error."""
    made = []
    for _ in range(2):
        try:
            made.append(session.assemble())
        except ContextOverflowError as error:
            made.append(error)
    return made


def assert_same(one, other):
    if isinstance(one, ContextOverflowError) or isinstance(other, ContextOverflowError):
        assert str(one) == str(other)
        return
    assert one.token_ids == other.token_ids
    assert one.layout == other.layout
    assert one.assembly_id == other.assembly_id


@pytest.mark.slow
@pytest.mark.parametrize("context", [96, 256, 1024])
@pytest.mark.parametrize("name", POLICIES)
def test_a_prompt_made_again_is_the_same(tmp_path, name, context):
    budget = Budget(context=context, reply=context // 8)
    rng = seeded(context)
    with opened(tmp_path / "a.db", POLICIES[name], budget) as memory:
        session, other = memory.session("s"), memory.session("other")
        for _ in range(context // 12):
            session.append("user", some_words(rng, 9))
        for number in range(25):
            if number % 7 == 0:
                other.append("user", some_words(rng, 12))
            say_something(rng, session, number)
            assert_same(*twice(session))
            session.append("assistant", some_words(rng, 9))
        assert session.check() == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["default", "kept", "other sessions"])
def test_a_prompt_made_again_after_reopening_is_the_same(tmp_path, name):
    budget = Budget(context=200, reply=20)
    rng = seeded(3)
    with opened(tmp_path / "a.db", POLICIES[name], budget) as memory:
        for _ in range(15):
            memory.session("s").append("user", some_words(rng, 9))
    for number in range(15):
        with opened(tmp_path / "a.db", POLICIES[name], budget) as memory:
            session = memory.session("s")
            say_something(rng, session, number)
            one = session.assemble()
        with opened(tmp_path / "a.db", POLICIES[name], budget) as memory:
            session = memory.session("s")
            assert_same(one, session.assemble())
            session.append("assistant", some_words(rng, 9))


@pytest.mark.slow
@pytest.mark.parametrize("inherit", ["all", "summary", "pins"])
@pytest.mark.parametrize("name", ["default", "kept", "other sessions"])
def test_a_subtasks_prompt_made_again_is_the_same(tmp_path, inherit, name):
    budget = Budget(context=200, reply=20)
    rng = seeded(4)
    with opened(tmp_path / "a.db", POLICIES[name], budget) as memory:
        session = memory.session("s")
        session.pin("role", "You know hotels.")
        for number in range(5):
            for _ in range(6):
                say_something(rng, session, rng.random())
                session.append("assistant", some_words(rng, 9))
            if number % 2:
                session.assemble()
            with session.subtask(f"t{number}", inherit=inherit) as task:
                for _ in range(5):
                    say_something(rng, task, rng.random())
                    assert_same(*twice(task))
                    task.append("assistant", some_words(rng, 9))
                task.promote(some_words(rng, 5))
            assert_same(*twice(session))


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 0.95])
def test_behind_pins_of_any_size_a_prompt_made_again_is_the_same(tmp_path, share):
    budget = Budget(context=330, reply=30)
    rng = seeded(5)
    with opened(tmp_path / "a.db", Policy(), budget) as memory:
        session = memory.session("s")
        session.pin("p", words(int(300 * share) or 1, "rule"))
        for _ in range(25):
            say_something(rng, session, rng.random())
            assert_same(*twice(session))
            session.append("assistant", some_words(rng, 9))


@pytest.mark.slow
def test_an_old_history_gives_the_same_first_prompt_again(tmp_path):
    """It is filled from the end, and what it left out is recalled at once."""
    rng = seeded(6)
    with opened(tmp_path / "a.db", Policy(), Budget(context=300, reply=30)) as memory:
        session = memory.session("s")
        for _ in range(120):
            say_something(rng, session, rng.random())
            session.append("assistant", some_words(rng, 9))
        for context in range(64, 1024, 96):
            budget = Budget(context=context, reply=16)
            one, other = session.assemble(budget=budget), session.assemble(budget=budget)
            assert_same(one, other)


@pytest.mark.slow
def test_hits_of_ones_own_give_the_same_prompt_again(tmp_path):
    rng = seeded(7)
    with opened(tmp_path / "a.db", Policy(), Budget(context=300, reply=30)) as memory:
        session = memory.session("s")
        for _ in range(30):
            say_something(rng, session, rng.random())
            hits = session.search("hotel wine")
            assert_same(session.assemble(hits=hits), session.assemble(hits=hits))
            session.append("assistant", some_words(rng, 9))


def recalling(prompt, *texts):
    """Return the prompt of one question of 32 tokens, with hits of falling scores."""
    budget = Budget(context=prompt + 1, reply=1, summary=0, retrieved=40)
    agent = Replay(budget, policy=Policy(summarizer=None))
    agent.say(*(say("user", words(prompt)) for _ in texts))
    agent.say(say("user", words(30)))
    found = [
        Hit(stored=replace(one, message=say("user", text)), score=1 - index / 10)
        for index, (one, text) in enumerate(zip(agent.messages, texts, strict=False))
    ]
    return agent.assemble(found)


def test_where_no_turn_can_leave_the_weakest_hit_leaves_first():
    """Of 59 tokens the question takes 33, so the headings and two of three lines fit."""
    prompt = recalling(59, words(4, "best"), words(4, "good"), words(4, "weak"))

    (text,) = [m.text for m in prompt.messages if m.text.startswith("Recalled")]
    assert "best" in text
    assert "good" in text
    assert "weak" not in text
    assert prompt.num_tokens <= 59
    assert Tier.RETRIEVED in prompt.tokens_by_tier


class SameLength:
    """A summarizer that says 16 words of its own each time."""

    author = "counting"

    def __init__(self):
        self.number = 0

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - a protocol's
        self.number += 1
        return words(16, f"summary{self.number}")


def test_of_summaries_that_do_not_fit_the_oldest_leaves_first_and_stays_away():
    """Three summaries of 18 tokens; beside a question of 100 in 150 there is room for two."""
    budget = Budget(context=151, reply=1, retrieved=0, summary=75)
    agent = Replay(budget, policy=Policy(summarizer=SameLength()))
    while not (agent.assemblies and len(shown(agent)) == 3):
        agent.say(say("user", words(20)))
        agent.assemble()
    three = shown(agent)
    agent.say(say("user", words(98)))

    assert agent.assemble().num_tokens <= 150
    assert three[0] not in shown(agent)
    assert three[-1] in shown(agent)
    first = agent.assemblies[-1]
    assert agent.assemble().prompt_hash == first.prompt_hash


def shown(agent):
    """Return the keys of the summaries in the last prompt, oldest first."""
    found = [span.source for span in agent.assemblies[-1].layout if span.tier is Tier.SUMMARY]
    return list(dict.fromkeys(found))


def test_a_summary_of_messages_that_are_all_recalled_is_shown_again_and_stays():
    """It covers messages 1 to 4; for one prompt they all stand among the recalled ones too."""
    budget = Budget(context=301, reply=1, retrieved=150, summary=75)
    agent = Replay(budget, policy=Policy(summarizer=SameLength()))
    while not (agent.assemblies and shown(agent)):
        agent.say(say("user", words(20)))
        agent.assemble()
    (key,) = shown(agent)
    last = agent.summaries[key].last
    hits = [Hit(stored=one, score=1.0) for one in agent.messages[:last]]
    hits = [
        replace(h, stored=replace(h.stored, message=say("user", f"x{i}")))
        for i, h in enumerate(hits)
    ]

    one = agent.assemble(hits)
    again = agent.assemble(hits)

    assert len(one.recalled) == last
    assert again.token_ids == one.token_ids
    assert [summary.key for summary in agent.assemble().summaries] == [key]
    assert agent.check() == ()
