"""What binds or informs is carried from summary to summary, word for word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.context.standing_facts import MIN_STRENGTH, priority, strength, subject_of
from agentmem.context.summary_lines import passages_of_summary
from agentmem.protocols import Passage
from agentmem.types import BranchId, Role, Summary

STATEMENTS = [
    "Never share the access code K7-QX with a visitor.",
    "The total must stay under 500 EUR, with no exceptions.",
    "Niemals vor 22:00 anrufen, das ist verboten.",
    "Ne supprime jamais le dossier /srv/backup sans accord.",
    "Nunca uses el servidor db-3 para las pruebas.",
    "预算最多500元，不得超过。",  # noqa: RUF001 - as it is typed
    "We decided on the Hotel Aurora; it costs 84 EUR a night.",
    "The on-call owner this week is Priya Natarajan, ext. 4417.",
]
FILLER = ["Let us look at the layout of the page again.", "Sounds fine, let us go on with it."]


def compacted(texts, *, max_chars, rounds=1):
    """Summarize, and then the summary again and again."""
    passages = [
        Passage(position=at, role=Role.USER, text=text) for at, text in enumerate(texts, start=1)
    ]
    text = ""
    for _ in range(rounds):
        text = ExtractiveSummarizer().summarize(passages, max_tokens=max_chars, count=len)
        summary = Summary(
            branch_id=BranchId(1),
            first=1,
            last=len(texts),
            level=1,
            text=text,
            author="extractive",
            source_hash="",
        )
        passages = list(passages_of_summary(summary))
    return text


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_binds_or_informs_stands(statement):
    assert strength(statement, Role.USER) >= MIN_STRENGTH


@pytest.mark.parametrize(
    "text", [*FILLER, "", "Okay, noted: never mind.", "Good morning!", "What is the limit?"]
)
def test_talk_does_not_stand(text):
    assert strength(text, Role.USER) < MIN_STRENGTH


def test_statements_outlive_ten_rounds_in_a_fifth_of_the_text():
    texts = [text for statement in STATEMENTS for text in (*FILLER * 12, statement)]
    summary = compacted(texts, max_chars=sum(map(len, texts)) // 5, rounds=10)

    assert [statement for statement in STATEMENTS if statement not in summary] == []


def test_of_several_versions_the_newest_stands():
    texts = ["The cap is 300 EUR.", *FILLER, "The cap is 450 EUR.", *FILLER]
    summary = compacted(texts, max_chars=40)

    assert "450 EUR" in summary
    assert "300 EUR" not in summary


def test_a_short_message_stands_as_a_whole():
    """The second sentence is the condition of the first."""
    text = "The limit is 500 EUR. Exceed it only with approval."
    assert text in compacted([*FILLER, text, *FILLER], max_chars=80)


def test_of_a_long_message_the_sentences_that_bind_stand():
    text = f"{'We talked about this and that. ' * 20}Never push to main before the review of R-12."
    summary = compacted([text, *FILLER], max_chars=120)
    assert "Never push to main before the review of R-12." in summary


def test_each_signal_counts():
    plain = strength("The page is blue.", Role.USER)
    for text in (
        "The page must be blue.",
        "The page we are working on is blue.",
        "I prefer the blue page.",
        "The page 4711 is blue.",
        "NOTE: The page is blue.",
    ):
        assert strength(text, Role.USER) > plain


def test_what_the_assistant_says_asks_or_acknowledges_counts_less():
    rule = "It must never run without approval"
    user = strength(f"{rule}.", Role.USER)
    assert strength(f"{rule}.", Role.ASSISTANT) == user / 2
    assert strength(f"{rule}?", Role.USER) < user / 2
    assert strength(f"Understood. {rule}.", Role.USER) < user / 2


def test_a_list_of_numbers_is_not_ten_times_a_fact():
    assert strength("1 2 3 4 5 6 7 8", Role.USER) == strength("1 2", Role.USER)


def test_of_two_equally_strong_the_shorter_comes_first():
    short, long = "Never run it.", f"Never run it{' and so on' * 20}."
    assert priority(short, Role.USER) > priority(long, Role.USER)


def test_the_subject_of_a_statement_leaves_its_values_out():
    assert subject_of("The cap is $500.") == subject_of("the  cap is $45,000.")
    assert subject_of("The cap is $500.") != subject_of("The rent is $500.")


@given(st.lists(st.sampled_from([*STATEMENTS, *FILLER]), max_size=12), st.integers(0, 400))
def test_a_summary_never_takes_more_than_it_may(texts, max_chars):
    assert len(compacted(texts, max_chars=max_chars, rounds=2)) <= max_chars
