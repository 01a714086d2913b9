"""The first prompt over an old history uses the budget that there is."""

import random

import pytest

from agentmem import Budget, Memory, Policy
from agentmem.context import ExtractiveSummarizer
from agentmem.retrieval import HybridRetriever
from agentmem.testing import WordCounter
from agentmem.types import PrefixBreak, Tier

VOCABULARY = ("hotel", "lisbon", "train", "porto", "beach", "price", "date", "room", "wine")


class Says:
    """A summarizer that writes so many words, or fails."""

    author = "says"

    def __init__(self, share):
        self.share = share
        self.num_asked = 0

    def summarize(self, passages, *, max_tokens, count):  # noqa: ARG002 - a protocol's
        self.num_asked += 1
        if self.share is None:
            raise RuntimeError("no model")
        number = max(3, int(self.share * max_tokens) - 2)
        return " ".join(f"point{passages[0].position}x{i}" for i in range(number))


SUMMARIZERS = {
    "none": lambda: None,
    "sentences": ExtractiveSummarizer,
    "all of its share": lambda: Says(1.0),
    "a tenth of its share": lambda: Says(0.1),
    "a failing one": lambda: Says(None),
}


def seeded(number):
    return random.Random(number)  # noqa: S311 - repeatable


def say_turns(rng, session, number):
    for _ in range(number):
        for role in ("user", "assistant"):
            text = " ".join(rng.choice(VOCABULARY) for _ in range(rng.randrange(2, 12)))
            session.append(role, text + ".")


def opened(path, summarizer, budget, retriever=None, **policy):
    return Memory.open(
        f"sqlite:///{path}",
        counter=WordCounter(),
        retriever=retriever,
        budget=budget,
        policy=Policy(summarizer=summarizer, **policy),
    )


@pytest.mark.slow
@pytest.mark.parametrize("summary", [0.15, 0.4, 300])
@pytest.mark.parametrize("name", SUMMARIZERS)
def test_the_first_prompt_fills_the_budget(tmp_path, name, summary):
    budget = Budget(context=1100, reply=100, summary=summary, retrieved=0)
    with opened(tmp_path / "a.db", SUMMARIZERS[name](), budget) as memory:
        session = memory.session("s")
        session.pin("role", "You know hotels.")
        say_turns(seeded(1), session, 150)
        session.append("user", "And now?")

        prompt = session.assemble()

        assert 0.95 * 1000 <= prompt.num_tokens <= 1000
        assert session.check() == ()
        assert session.assemble().token_ids == prompt.token_ids


@pytest.mark.slow
@pytest.mark.parametrize("pinned", [0.5, 0.8])
def test_it_fills_what_large_pins_leave(tmp_path, pinned):
    budget = Budget(context=2100, reply=100, retrieved=0)
    with opened(tmp_path / "a.db", ExtractiveSummarizer(), budget) as memory:
        session = memory.session("s")
        session.pin("rules", " ".join(["rule"] * int(2000 * pinned)))
        say_turns(seeded(2), session, 150)
        session.append("user", "And now?")

        left = 2000 * (1 - pinned)
        used = session.assemble().num_tokens - 2000 * pinned
        assert used >= 0.95 * left - 24  # a turn has up to 26 tokens


@pytest.mark.slow
def test_it_fills_the_budget_beside_what_is_recalled(tmp_path):
    budget = Budget(context=1100, reply=100)
    with opened(tmp_path / "a.db", ExtractiveSummarizer(), budget, HybridRetriever()) as memory:
        session = memory.session("s")
        say_turns(seeded(3), session, 150)
        session.append("user", "Which hotel in Lisbon?")

        prompt = session.assemble()

        assert prompt.num_tokens >= 950
        assert prompt.tokens_by_tier[Tier.RETRIEVED] > 100
        assert session.assemble().token_ids == prompt.token_ids


@pytest.mark.slow
def test_another_budget_over_the_same_history_is_filled_too(tmp_path):
    budget = Budget(context=400, reply=50, retrieved=0)
    with opened(tmp_path / "a.db", ExtractiveSummarizer(), budget) as memory:
        session = memory.session("s")
        say_turns(seeded(4), session, 200)
        session.append("user", "And now?")
        session.assemble()

        for context in (600, 1000, 2000):
            other = Budget(context=context, reply=50, retrieved=0)
            assert session.assemble(budget=other).num_tokens >= 0.95 * (context - 50) - 12


@pytest.mark.slow
def test_what_follows_slides_to_low_water_and_then_no_more_often(tmp_path):
    budget = Budget(context=1100, reply=100, retrieved=0)
    rng = seeded(5)
    with opened(tmp_path / "a.db", ExtractiveSummarizer(), budget) as memory:
        session = memory.session("s")
        say_turns(rng, session, 150)
        prompts = []
        for _ in range(60):
            say_turns(rng, session, 1)
            session.append("user", "And now?")
            prompts.append(session.assemble())

    slides = [p for p in prompts if p.reuse.broken_by is PrefixBreak.COMPACTION]
    assert 0 < len(slides) <= 1 + 60 * 22 / 212
    assert all(prompt.num_tokens < 800 for prompt in slides)


@pytest.mark.slow
def test_a_summarizer_is_asked_at_most_twice_for_the_first_prompt(tmp_path):
    for share, most in ((1.0, 1), (0.1, 2)):
        says = Says(share)
        budget = Budget(context=1100, reply=100, retrieved=0)
        with opened(tmp_path / f"{share}.db", says, budget) as memory:
            session = memory.session("s")
            say_turns(seeded(6), session, 150)
            session.append("user", "And now?")
            session.assemble()
        assert says.num_asked <= most
