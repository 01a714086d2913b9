"""Long messages are recalled by their passages, from the prompt to the log."""

import pytest

from agentmem.config import Budget
from agentmem.context import Policy
from agentmem.memory import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.testing import ScriptedModel
from agentmem.types import DisplayForm, Tier, TruncationReason

FILLER = "The weather was fine and nothing of any note took place on that day. "
ANSWER = "The ferry to Hvar costs ninety kuna."
REPLY = FILLER * 20 + ANSWER + " " + FILLER * 20


@pytest.fixture
def memory(url):
    with Memory.open(
        url,
        model=ScriptedModel(),
        retriever=HybridRetriever(),
        budget=Budget(context=600, reply=20, retrieved=0.4),
        policy=Policy(summarizer=None, keep_recalled=True),
    ) as opened:
        yield opened


@pytest.fixture
def session(memory):
    session = memory.session("trip", user="u42")
    session.append("user", "Where can I go by boat?")
    session.append("assistant", REPLY)
    for number in range(60):
        session.append("user", f"And then, number {number}? " + FILLER)
        session.append("assistant", "Go on.")
    session.append("user", "What does the ferry to Hvar cost?")
    return session


def parts(prompt):
    return [span for span in prompt.layout if span.form is DisplayForm.PASSAGES]


def shown(span):
    return " ".join(REPLY[start:end] for start, end in span.passages)


def test_the_prompt_has_the_passage_with_the_answer_and_says_which_it_is(session):
    prompt = session.assemble()

    (span,) = parts(prompt)
    assert (span.first, span.tier) == (2, Tier.RETRIEVED)
    assert ANSWER in shown(span)
    assert ANSWER in prompt.text
    assert "assistant [2: " in prompt.text
    assert len(shown(span)) < len(REPLY)
    (hit,) = (one for one in prompt.recalled if one.position == 2)
    assert hit.passages == span.passages
    assert f"characters {span.passages[0][0]}-" in hit.explain()
    assert session.check() == ()


def test_what_of_a_message_is_not_shown_is_in_the_log(session, memory, url):
    prompt = session.assemble()

    (span,) = parts(prompt)
    assert any(
        record.first <= 2 <= record.last and record.reason is TruncationReason.NOT_RETRIEVED
        for record in session.truncations()
    )
    assert f"characters {span.passages[0][0]}-{span.passages[0][1]}" in span.explain()
    memory.close()
    with Memory.open(url) as again:
        (stored,) = parts(again.session("trip", user="u42").assemblies()[-1])
        assert stored == span


def test_a_recalled_passage_stays_where_it_was_in_the_next_prompt(session):
    first = session.assemble()
    session.append("assistant", "Ninety kuna.")
    session.append("user", "Thank you. And now something else: number 3?")

    second = session.assemble()

    assert parts(second)[0].passages == parts(first)[0].passages
    assert parts(second)[0].anchor == parts(first)[0].anchor
    assert session.check() == ()


def test_of_a_deleted_message_no_passage_is_shown_again(session):
    (span,) = parts(session.assemble())
    session.delete_message(2)
    session.append("assistant", "I see.")
    session.append("user", "What does the ferry to Hvar cost?")

    prompt = session.assemble()

    assert span
    assert parts(prompt) == []
    assert ANSWER not in prompt.text
    assert session.check() == ()


def test_a_search_finds_each_message_once_by_its_best_passage(session):
    hits = session.search("ferry to Hvar", limit=5)

    assert len({hit.stored.id for hit in hits}) == len(hits) == 5
    (hit,) = (hit for hit in hits if hit.stored.position == 2)
    assert ANSWER in hit.text
    assert len(hit.text) < len(REPLY) / 4
