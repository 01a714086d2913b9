"""A line that was said many times is recalled once, the newest, with its number."""

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import Budget, ImagePart, Memory, Policy
from agentmem.context.pack_hits import distinct
from agentmem.protocols import Hit
from agentmem.retrieval import HybridRetriever
from agentmem.testing import HashingEmbedder, WordCounter
from agentmem.types import Message, Role, TextPart, Tier
from tests.builders import NOON, say, stored
from tests.memory.retriever import WordRetriever

QUESTION = "Where is the deploy key of the staging server?"
FACT = "The deploy key of the staging server is kept in vault folder 17."
RETRIEVERS = {
    "words": HybridRetriever,
    "hybrid": lambda: HybridRetriever(HashingEmbedder()),
    "custom": WordRetriever,
}


@pytest.fixture(params=RETRIEVERS)
def opened(request):
    memories = []

    def open_memory(**fields):
        fields = {"budget": Budget(context=800, reply=50, retrieved=300)} | fields
        retriever = RETRIEVERS[request.param]()
        memory = Memory.open("sqlite://", counter=WordCounter(), retriever=retriever, **fields)
        memories.append(memory)
        return memory

    yield open_memory
    for memory in memories:
        memory.close()


def repeat(session, number, question=QUESTION):
    """Ask the same again and again, in spellings that differ in white space and case."""
    for i in range(number):
        session.append("user", question if i % 2 else f"  {question.upper()} ")
        session.append("assistant", f"Let me look for the {question.casefold()}")


def fill(session, number=120):
    for i in range(number):
        session.append("user", f"Tell me fact number {i} about trains.")
        session.append("assistant", f"Fact {i}: trains are long.")


def lines(prompt):
    """The lines of what is recalled, without headings."""
    texts = [m.text for m in prompt.messages if m.text.startswith("Recalled")]
    return [line for text in texts for line in text.split("\n") if ": " in line]


def bare(line):
    return " ".join(re.sub(r" \(\d+ times\)$", "", line).casefold().split())


@pytest.mark.slow
def test_the_one_fact_is_recalled_behind_200_copies(opened):
    session = opened().session("s")
    session.append("user", FACT)
    session.append("assistant", "Noted.")
    repeat(session, 200)
    fill(session)

    prompt = session.assemble(query=QUESTION)

    found = lines(prompt)
    assert any("vault folder 17" in line for line in found)
    assert len(set(map(bare, found))) == len(found)
    (asked,) = [line for line in found if bare(line) == f"user: {QUESTION}".casefold()]
    assert asked.endswith("? (200 times)")
    assert session.check() == ()


def test_the_newest_of_the_copies_is_the_one(opened):
    session = opened().session("s")
    repeat(session, 5)
    fill(session)
    hits = [hit for hit in session.assemble(query=QUESTION).recalled if hit.position <= 10]
    assert [hit.position for hit in hits if hit.position % 2] == [9]
    assert [hit.position for hit in hits if not hit.position % 2] == [10]


def test_a_search_is_for_so_many_lines(opened):
    session = opened().session("s")
    session.append("user", FACT)
    repeat(session, 50)
    session.append("user", "The staging server has a deploy log too.")

    hits = session.search(QUESTION, limit=4)

    assert len(hits) == 4
    assert {1, 102} <= {hit.stored.position for hit in hits}
    assert sorted(hit.times for hit in hits) == [1, 1, 50, 50]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_near_copies_are_evidence_and_stay(opened):
    session = opened().session("s")
    for i in range(6):
        session.append("user", f"The deploy key was changed on day {i}.")
    fill(session)
    assert len([line for line in lines(session.assemble(query="deploy key")) if "day" in line]) == 6


def test_who_says_it_makes_a_difference(opened):
    session = opened().session("s")
    for role in ("user", "assistant") * 3:
        session.append(role, "The deploy key is old.")
    fill(session)
    found = [line for line in lines(session.assemble(query="deploy key")) if "old" in line]
    assert sorted(found) == [
        "assistant: The deploy key is old. (3 times)",
        "user: The deploy key is old. (3 times)",
    ]


def test_what_the_window_shows_is_not_recalled_in_another_copy(opened):
    session = opened().session("s")
    session.append("user", FACT)
    repeat(session, 30)
    fill(session)
    session.append("user", QUESTION.lower())
    found = lines(session.assemble())
    assert any("vault folder 17" in line for line in found)
    assert f"user: {QUESTION}".casefold() not in set(map(bare, found))


def test_copies_in_other_sessions_are_copies_too(opened):
    memory = opened(policy=Policy(recall_sessions=True))
    for name in ("a", "b", "c"):
        other = memory.session(name)
        other.append("user", FACT)
        repeat(other, 4)
    session = memory.session("d")
    repeat(session, 4)
    fill(session)
    found = lines(session.assemble(query=QUESTION))
    assert len(set(map(bare, found))) == len(found)
    assert any(line.endswith("vault folder 17. (3 times)") for line in found)
    (asked,) = [line for line in found if bare(line) == f"user: {QUESTION}".casefold()]
    assert asked.endswith("(16 times)")
    everywhere = session.search(QUESTION, everywhere=True, limit=3)
    assert len({bare(hit.stored.message.text) for hit in everywhere}) == 3


@pytest.mark.slow
def test_kept_blocks_show_a_line_once_and_as_it_was(opened):
    memory = opened(policy=Policy(keep_recalled=True))
    session = memory.session("s")
    session.append("user", FACT)
    repeat(session, 20)
    fill(session)
    session.append("user", "the staging server, please")
    first = session.assemble()
    recalled = lines(first)
    assert any("(20 times)" in line for line in recalled)
    assert any("vault folder 17" in line for line in recalled)
    session.append("assistant", "one moment")
    session.append("user", "and the deploy key of it")
    second = session.assemble()
    # The block is written again as it was, and nothing in it is recalled a second time.
    text = next(m.text for m in first.messages if m.text.startswith("Recalled"))
    assert text in [m.text for m in second.messages]
    assert len(set(map(bare, lines(second)))) == len(lines(second))
    assert session.assemble().token_ids == second.token_ids
    assert session.check() == ()


def test_copies_that_are_not_shown_are_accounted_for(opened):
    session = opened().session("s")
    repeat(session, 30)
    fill(session)
    prompt = session.assemble(query=QUESTION)
    positions = [p for span in prompt.layout for p in range(span.first, span.last + 1)]
    assert positions == list(range(1, prompt.head + 1))
    retrieved = [span for span in prompt.layout if span.tier is Tier.RETRIEVED]
    assert sum(span.last - span.first + 1 for span in retrieved) == len(prompt.recalled)
    assert session.check() == ()


def test_hits_of_the_caller_are_shown_once_too():
    texts = ["the key is red", "The  key is RED", "the key is blue"]
    found = [
        Hit(stored=replace(one, created_at=NOON + timedelta(days=one.position)), score=score)
        for one, score in zip(stored(*(say("user", t) for t in texts)), (3, 1, 2), strict=True)
    ]
    once = distinct(found)
    assert [(hit.stored.position, hit.score, hit.times) for hit in once] == [(2, 3, 2), (3, 2, 1)]


def test_the_same_words_about_other_images_are_no_copies(opened):
    session = opened().session("s")
    for name in ("one", "two"):
        image = ImagePart(url=f"https://x.org/{name}.png", alt="a plan")
        session.append("user", (TextPart(text="what does this show"), image))
    assert len(session.search("plan show")) == 2


@given(st.lists(st.sampled_from(["a key", "A  key", "b key", "a key!"]), max_size=12))
def test_nothing_is_lost_but_copies(texts):
    said = stored(*(Message(role=Role.USER, parts=(TextPart(text=t),)) for t in texts))
    once = distinct([Hit(stored=one, score=1.0) for one in said])
    assert len(once) == len({" ".join(t.casefold().split()) for t in texts})
    assert sum(hit.times for hit in once) == len(texts)
