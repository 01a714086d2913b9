"""The window slides once in a while and not with each turn, whatever pins take."""

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import Budget, Memory, Policy, ToolCall
from agentmem.context import DiscardOldResults
from agentmem.context.slide_window import keep_from
from agentmem.protocols import Hit
from agentmem.testing import WordCounter
from agentmem.types import DisplayForm, PrefixBreak, Tier
from tests.builders import call, pin, result, say, words
from tests.context.replay import Replay


class Full:
    """A summarizer that takes all that it is given, as a model may."""

    author = "full"

    def summarize(self, passages, *, max_tokens, count):
        text = words(max_tokens, f"said{passages[0].position}")
        while count(text) > max_tokens:
            text = text.rpartition(" ")[0]
        return text


def seeded(number):
    return random.Random(number)  # noqa: S311 - repeatable


def opened(num_pinned, *, policy=None, prompt=950, **shares):
    """Return a conversation behind a pin of so many tokens, and the least room of its window."""
    budget = Budget(context=prompt + 1, reply=1, **shares)
    pins = [pin("p", words(num_pinned - 2, "rule"))] if num_pinned > 2 else []
    behind = budget.behind(num_pinned if pins else 0)
    policy = policy or Policy(summarizer=Full())
    taken = behind.retrieved_tokens
    if policy.summarizer is not None:
        taken += behind.summary_tokens
    room = prompt - 1 - (num_pinned if pins else 0) - taken
    return Replay(budget, pins, policy), room


def slides(prompts):
    return sum(prompt.reuse.broken_by is PrefixBreak.COMPACTION for prompt in prompts)


def talk(agent, sizes, *, recall=None):
    """Say turns of these sizes and assemble for each; return the prompts and what was said."""
    prompts, said = [], 0
    for number, size in enumerate(sizes):
        agent.say(say("user", words(size, f"u{number}")))
        prompts.append(agent.assemble(recall(agent) if recall else ()))
        agent.say(say("assistant", words(size, f"a{number}")))
        said += 2 * (size + 2)
    assert agent.check() == ()
    return prompts, said


@pytest.mark.slow
@pytest.mark.parametrize("summarizer", [None, Full()], ids=["no summaries", "summaries"])
def test_behind_pins_of_800_of_950_tokens_the_window_slides_with_every_third_turn(summarizer):
    """Each turn takes 28 of the 148 tokens that are left: a slide keeps two of five turns."""
    agent, _ = opened(802, policy=Policy(summarizer=summarizer))

    prompts, _ = talk(agent, [12] * 200)

    assert slides(prompts) <= 200 / 3


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(
    share=st.sampled_from([0.0, 0.3, 0.6, 0.8, 0.9, 0.95]),
    prompt=st.sampled_from([300, 950, 2000]),
    low_water=st.sampled_from([0.0, 0.3, 0.5, 0.8, 0.95]),
    summary=st.sampled_from([0.0, 0.15, 0.4, 0.7, 100, 250]),
    has_summaries=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_between_two_slides_so_much_is_said(  # noqa: PLR0913, PLR0917 - what there is to vary
    share, prompt, low_water, summary, has_summaries, seed
):
    """A slide leaves half of what is between low water and full free, at the least."""
    policy = Policy(summarizer=Full() if has_summaries else None)
    shares = {"low_water": low_water, "summary": summary, "retrieved": 0}
    agent, room = opened(int(share * prompt), policy=policy, prompt=prompt, **shares)
    rng = seeded(seed)
    largest = max(1, room // 8 - 2)
    sizes = [rng.randrange(1, largest + 1) for _ in range(80)]

    prompts, said = talk(agent, sizes)

    margin = max(1.0, (1 - low_water) * room / 2 - 4)
    assert slides(prompts) <= 1 + said / margin


@pytest.mark.slow
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 0.9])
def test_recalled_text_that_comes_and_goes_moves_the_window_no_more(share, keep):
    """Turns recall nothing, little, or all that there is room for."""
    policy = Policy(summarizer=Full(), keep_recalled=keep)
    agent, room = opened(int(share * 950), policy=policy)
    rng = seeded(1)

    def recall(agent):
        hidden = agent.messages[: max(0, len(agent.messages) - 60)]
        chosen = hidden[-rng.choice([1, 3, 40]) :] if rng.random() < 0.7 else ()
        return [Hit(stored=one, score=one.position) for one in chosen]

    prompts, said = talk(agent, [max(1, room // 16)] * 100, recall=recall)

    starts = [
        min(s.first for s in p.layout if s.tier in (Tier.RECENT, Tier.CURRENT)) for p in prompts
    ]
    moves = sum(one != other for one, other in pairwise(starts))
    assert moves <= 2 + 2 * said / (room / 4)


@pytest.mark.parametrize("share", [0.0, 0.5, 0.8, 0.9])
@pytest.mark.parametrize("num_asked", [3, 0.3, 0.6])
def test_a_tool_loop_slides_no_more_often(share, num_asked):
    """Its question stays all along, so a slide can free no more than what that leaves."""
    agent, room = opened(int(share * 950), policy=Policy(summarizer=Full()), retrieved=0)
    asked = num_asked if isinstance(num_asked, int) else int(num_asked * room)
    agent.say(say("user", words(asked)))
    size, prompts = max(1, room // 24), []
    for number in range(120):
        agent.say(call(f"c{number}"), result(f"c{number}", words(size, f"r{number}")))
        prompts.append(agent.assemble())

    said = 120 * (size + 5)
    margin = min(room / 4, room - asked - 3 * (size + 5))
    assert slides(prompts) <= 1 + said / margin


def test_a_question_over_the_window_is_clipped_again_once_in_a_while():
    """The first prompt shows as much as fits; the next calls then find room for some more."""
    agent = Replay(Budget(context=401, reply=1, retrieved=0), policy=Policy(summarizer=None))
    agent.say(say("user", words(2000)))
    prompts = [agent.assemble()]
    for number in range(40):
        agent.say(call(f"c{number}"), result(f"c{number}", words(5)))
        prompts.append(agent.assemble())

    assert prompts[0].num_tokens == 400
    kept = [next(s.kept_chars for s in p.layout if s.form is DisplayForm.CLIPPED) for p in prompts]
    assert len(set(kept)) <= 3
    assert slides(prompts) <= 1 + 40 * 12 / 90
    results = [m.text for m in prompts[1].messages if m.role == "tool"]
    assert results == [words(5)]


@pytest.mark.slow
def test_pins_that_grow_shrink_the_summaries_with_the_next_slide():
    agent, _ = opened(0)
    talk(agent, [12] * 60)
    assert agent.assemblies[-1].tokens_by_tier[Tier.SUMMARY] > 60
    agent.pins = (pin("p", words(800, "rule")),)

    prompts, _ = talk(agent, [12] * 60)

    assert prompts[-1].tokens_by_tier.get(Tier.SUMMARY, 0) <= 30
    assert slides(prompts) <= 20


def test_stubs_alone_are_enough_behind_large_pins_if_they_leave_a_margin():
    """Behind 800 of 950 tokens a stub of 9 words frees half of what the window has."""
    policy = Policy(summarizer=None, discardable=DiscardOldResults(turns=1))
    agent, _ = opened(802, policy=policy, summary=0, retrieved=0)
    agent.say(say("user", "one"), call("a"), result("a", words(80)))
    agent.assemble()
    agent.say(say("user", "two"))
    agent.say(say("user", words(60)))

    prompt = agent.assemble()

    assert [s.form for s in prompt.layout][:2] == [DisplayForm.FULL, DisplayForm.STUB]
    assert prompt.layout[0].tier is Tier.RECENT


def test_stubs_that_only_just_make_a_prompt_fit_are_not_enough():
    """After the stub 940 of 950 tokens would be taken: the window slides too."""
    policy = Policy(summarizer=None, discardable=DiscardOldResults(turns=1))
    agent, _ = opened(802, policy=policy, summary=0, retrieved=0)
    agent.say(say("user", "one"), call("a"), result("a", words(80)))
    agent.assemble()
    agent.say(say("user", "two"))
    agent.say(say("user", words(110)))

    prompt = agent.assemble()

    assert prompt.layout[0].tier is None
    assert prompt.num_tokens <= 950


def test_room_is_kept_for_the_summary_that_a_slide_makes():
    """Low water is 0.9: 10 tokens of room would be left, of which a summary could take all."""
    agent, _ = opened(0, policy=Policy(summarizer=Full()), prompt=400, low_water=0.9, retrieved=0)

    prompts, said = talk(agent, [10] * 60)

    assert slides(prompts) <= 1 + said / (0.1 * 340 / 2)
    assert all(prompt.num_tokens <= 400 for prompt in prompts)


def test_pins_that_leave_little_are_told_with_the_numbers(tmp_path, caplog):
    url = f"sqlite:///{tmp_path / 'a.db'}"
    budget = Budget(context=1000, reply=50)
    with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", "hello")
        assert session.assemble().warnings == ()
        session.pin("rules", words(800))
        prompt = session.assemble()
        session.append("user", "again")
        other = session.assemble()

    (warning,) = prompt.warnings
    assert "802" in warning
    assert "148" in warning
    assert warning in prompt.explain()
    assert other.warnings == prompt.warnings
    assert [one.message for one in caplog.records if one.levelname == "WARNING"] == [
        f"branch {prompt.branch_id}: {warning}"
    ]


@pytest.mark.slow
def test_tool_calls_behind_large_pins_slide_no_more_often(tmp_path):
    """The same through a memory on disk, with summaries and recall off and on."""
    budget = Budget(context=1000, reply=50)
    with Memory.open(
        f"sqlite:///{tmp_path / 'a.db'}", counter=WordCounter(), budget=budget
    ) as memory:
        session = memory.session("s")
        session.pin("rules", words(700))
        breaks = 0
        for number in range(60):
            session.append("user", words(6, f"u{number}"))
            one = ToolCall(id=f"c{number}", name="look")
            session.append("assistant", tool_calls=[one])
            session.append("tool", words(6, f"r{number}"), tool_call_id=one.id)
            breaks += session.assemble().reuse.broken_by is PrefixBreak.COMPACTION
        assert session.check() == ()

    assert breaks <= 1 + 60 * 24 / 55


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(-10, 100))
def test_the_window_is_the_longest_end_that_fits(sizes, limit):
    first = keep_from(sizes, limit)

    assert first == len(sizes) or sum(sizes[first:]) <= limit


@pytest.mark.slow
@pytest.mark.parametrize("num_words", [900, 2000, 5000])
def test_the_rounds_of_a_clipped_question_do_not_slide_one_by_one(num_words):
    """Rounds of one size: each fits where the one before it stood, to the last token."""
    budget = Budget(context=950, reply=50)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        session = memory.session("s")
        session.append("user", " ".join(f"line{number}" for number in range(num_words)))
        breaks = 0
        for number in range(60):
            session.append("assistant", tool_calls=[ToolCall(id=f"c{number}", name="poll")])
            session.append("tool", "one two three four five six", tool_call_id=f"c{number}")
            breaks += session.assemble().reuse.broken_by is not None

        assert breaks <= 8
        assert session.summaries()
        assert session.check() == ()
