"""What is valid now: a replaced statement is marked where it is recalled."""

import pytest

from agentmem.config import Budget
from agentmem.context import ExtractiveSummarizer, Policy
from agentmem.errors import ConflictError, ReplacementNotFoundError
from agentmem.memory import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.testing import ScriptedModel
from agentmem.types import ReplacementAuthor, Tier, common_prefix

OLD = "The meeting with Petra is on Thursday at ten in the green room."
NEW = "Petra asks for Friday at nine, the blue house."
ASKED = "When is the meeting with Petra in the green room?"


def opened(url, **policy):
    return Memory.open(
        url,
        model=ScriptedModel(),
        retriever=HybridRetriever(),
        budget=Budget(context=300, reply=20, retrieved=0.3, summary=0.3),
        policy=Policy(**{"summarizer": None} | policy),
    )


def fill(session, rounds=30):
    for number in range(rounds):
        session.append(
            "user", f"Let us go on with part {number} of the plan, and then the next one."
        )
        session.append("assistant", "I have done that, and it looks fine to me.")


def talk(memory, rounds=30, old=OLD, new=NEW):
    session = memory.session("trip", user="u42")
    session.append("user", old)
    session.append("assistant", "Noted.")
    session.append("user", new)
    session.append("assistant", "Noted too.")
    fill(session, rounds)
    return session


def prompted(session):
    """Go on, with a prompt for each turn, until the window has slid; return the last one."""
    for _ in range(12):
        fill(session, 1)
        session.append("user", "And on.")
        prompt = session.assemble()
        session.append("assistant", "Yes.")
    return prompt


@pytest.fixture
def memory(url):
    with opened(url) as memory:
        yield memory


@pytest.fixture
def session(memory):
    return talk(memory)


def recalled_text(prompt):
    (found,) = [m.text for m in prompt.messages if m.text.startswith("Recalled from")]
    return found


def test_a_replaced_message_is_recalled_with_its_mark_and_what_replaced_it(session):
    session.supersede(1, 3)
    session.append("user", ASKED)

    prompt = session.assemble()

    lines = recalled_text(prompt).split("\n")
    assert f"user [1: replaced by 3]: {OLD}" in lines
    assert f"user: {NEW}" in lines
    positions = [hit.position for hit in prompt.recalled]
    assert {1, 3} <= set(positions)
    (old,) = (hit for hit in prompt.recalled if hit.position == 1)
    assert old.superseded_by == 3
    assert "replaced by message 3" in old.explain()
    (span,) = (span for span in prompt.layout if span.superseded_by is not None)
    assert (span.first, span.tier, span.superseded_by) == (1, Tier.RETRIEVED, 3)
    assert session.check() == ()


def test_the_replacement_takes_the_room_before_what_it_replaced(session):
    session.supersede(1, 3)
    session.append("user", ASKED)

    small = session.assemble(budget=Budget(context=300, reply=20, retrieved=34))

    assert NEW in small.text
    assert OLD not in small.text


def test_a_search_has_the_valid_message_first(session):
    assert session.search(ASKED, limit=2)[0].stored.position == 1
    session.supersede(1, 3)

    first, second = session.search(ASKED, limit=2)

    assert (first.stored.position, first.superseded_by) == (3, None)
    assert (second.stored.position, second.superseded_by) == (1, 3)


def test_the_newest_of_a_chain_of_replacements_counts(session):
    session.append("user", "Petra now says Monday.")
    last = session.branch.head
    session.supersede(1, 3)
    session.supersede(3, last)
    fill(session)
    session.append("user", ASKED)

    text = recalled_text(session.assemble())

    assert f"user [1: replaced by {last}]: {OLD}" in text
    assert "Petra now says Monday." in text


def test_a_mark_can_be_removed(session):
    mark = session.supersede(1, 3)
    assert mark.author is ReplacementAuthor.CALLER
    assert session.replacements() == (mark,)
    assert session.unsupersede(1) == mark
    session.append("user", ASKED)

    assert "replaced by" not in session.assemble().text
    assert session.replacements() == ()
    with pytest.raises(ReplacementNotFoundError):
        session.unsupersede(1)


def test_a_kept_message_keeps_its_label_in_the_prefix(url):
    with opened(url, keep_recalled=True) as memory:
        session = talk(memory)
        session.supersede(1, 3)
        session.append("user", ASKED)
        first = session.assemble()
        session.append("assistant", "On Friday.")
        session.append("user", "Thank you.")

        second = session.assemble()

        assert "[1: replaced by 3]" in second.text
        same = common_prefix(first.token_ids, second.token_ids)
        assert second.reuse.common_tokens <= same
        assert second.reuse.common_tokens > 0


def test_a_replaced_statement_is_in_no_summary_that_is_written_later(url):
    old = "Send all parcels to 14 Elm Street."
    with opened(url, summarizer=ExtractiveSummarizer()) as memory:
        session = talk(memory, rounds=1, old=old, new="Linden Road is better.")
        before = prompted(session)
        assert old in "\n".join(summary.text for summary in before.summaries)

        session.supersede(1, 3)

        assert all(old not in summary.text for summary in session.summaries())
        after = prompted(session)
        texts = "\n".join(summary.text for summary in after.summaries)
        assert "Linden Road is better." in texts
        assert old not in texts
        assert session.check() == ()


def test_with_a_deleted_message_its_marks_go(session):
    session.supersede(1, 3)
    session.delete_message(3)

    assert session.replacements() == ()
    with pytest.raises(ConflictError):
        session.supersede(1, 3)


def test_a_session_that_is_opened_again_shows_the_same(url):
    with opened(url) as memory:
        session = talk(memory)
        session.supersede(1, 3)
        session.append("user", ASKED)
        first = session.assemble()
    with opened(url) as memory:
        again = memory.session("trip", user="u42")
        assert again.assemble().token_ids == first.token_ids
        assert again.assemblies()[-1].layout == first.layout
        assert again.replacements()[0].new == 3


def test_a_message_that_plainly_changes_an_earlier_one_is_marked_as_it_is_stored(memory):
    session = memory.session("plans", user="u42")
    session.append("user", "The budget meeting is on Thursday at ten.")
    session.append("assistant", "The budget meeting is on Thursday at ten.")
    session.append("user", "Could we move the budget meeting to Friday?")
    assert session.replacements() == ()

    session.append("user", "We moved the budget meeting to Friday.")

    (mark,) = session.replacements()
    assert (mark.old, mark.new, mark.author) == (1, 4, ReplacementAuthor.RULE)
    session.append("user", "We moved the budget meeting to Monday.")
    assert [(one.old, one.new) for one in session.replacements()] == [(1, 4), (4, 5)]
    hits = session.search("When is the budget meeting?", limit=3)
    assert {hit.stored.position: hit.superseded_by for hit in hits if hit.superseded_by} == {
        position: 5 for position in (1, 4) if position in {hit.stored.position for hit in hits}
    }


def test_nothing_is_marked_where_the_policy_says_so(url):
    with opened(url, mark_replaced=False) as memory:
        session = memory.session("plans", user="u42")
        session.append("user", "The budget meeting is on Thursday at ten.")
        session.append("user", "We moved the budget meeting to Friday.")
        assert session.replacements() == ()


def test_a_mark_by_hand_counts_and_is_not_changed_by_a_rule(memory):
    session = memory.session("plans", user="u42")
    session.append("user", "The budget meeting is on Thursday at ten.")
    session.append("user", "Never mind that.")
    session.supersede(1, 2)

    session.append("user", "We moved the budget meeting to Friday.")

    assert [(one.old, one.new) for one in session.replacements()] == [(1, 2)]
