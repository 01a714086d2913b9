"""What binds or informs is carried from summary to summary, word for word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_talks import KINDS, compacted, kept_kinds, languages, planted_talk

from agentmem.context.ledger import ledger_of
from agentmem.context.salience import sentences_of
from agentmem.protocols import Passage
from agentmem.types import Role
from tests.context.test_standing_facts import STATEMENTS

FILLER = ["Let us look at the layout of the page again.", "Sounds fine, let us go on with it."]


def user(*texts):
    return [(Role.USER, text) for text in texts]


def ledger(*said):
    """The texts of the ledger, best first; what is said is a user's, or a role and a text."""
    passages = [
        Passage(position=n, role=one[0], text=one[1])
        if isinstance(one, tuple)
        else Passage(position=n, role=Role.USER, text=one)
        for n, one in enumerate(said, 1)
    ]
    return [
        " ".join(sentence.text for sentence in statement.sentences)
        for statement in ledger_of(sentences_of(passages), passages)
    ]


def test_statements_outlive_ten_rounds_in_a_fifth_of_the_text():
    texts = [text for statement in STATEMENTS for text in (*FILLER * 12, statement)]
    summary = compacted(user(*texts), sum(map(len, texts)) // 5, 10)[-1]

    assert [statement for statement in STATEMENTS if statement not in summary] == []


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("language", languages())
def test_planted_statements_outlive_small_talk_in_each_language(language, held_out):
    kept = [
        kept_kinds(*planted_talk(language, seed, held_out=held_out), rounds=5) for seed in range(8)
    ]

    for kind in KINDS:
        least = 6 if kind == "preference" else 4 if (language, kind) == ("es", "goal") else 8
        assert sum(one[kind] for one in kept) >= least


def test_of_several_versions_the_newest_stands():
    texts = ["The cap is 300 EUR.", *FILLER, "The cap is 450 EUR.", *FILLER]
    summary = compacted(user(*texts), 40, 1)[0]

    assert "450 EUR" in summary
    assert "300 EUR" not in summary


def test_a_version_in_other_words_comes_before_the_one_that_it_changes():
    old = "The budget for the kitchen cupboards is capped at 900 EUR, never more."
    new = "The kitchen cupboards may now take 1200 EUR of the budget."

    assert ledger(old, "Call me Fen.", new) == [new, "Call me Fen.", old]


def test_two_statements_that_only_bind_alike_are_no_versions():
    first, second = (
        "Never open the cellar without approval.",
        "Never feed the dog without approval.",
    )
    assert ledger(first, second, "Call me Fen.")[2] == "Call me Fen."


def test_two_statements_with_one_of_many_words_in_common_are_no_versions():
    first = "The red kitchen door leads to 3 narrow cellars with 40 shelves."
    second = "The blue kitchen lamp hangs from 2 hooks above 12 old chairs."
    assert ledger(first, second, "I prefer tea.")[-1] == "I prefer tea."


def test_what_others_say_is_no_version_of_what_a_user_says():
    rule = "The cap is 300 EUR, never more."
    answer = (Role.ASSISTANT, "The cap is 450 EUR, never more.")

    assert ledger(rule, answer, "Call me Fen.") == [rule, answer[1], "Call me Fen."]
    assert ledger((Role.TOOL, rule), answer) == [answer[1], rule]


def test_words_that_only_begin_alike_are_not_the_same_subject():
    said = ["Castles must never cost 4 EUR.", "I prefer tea.", "Carpets must never be 5 EUR."]
    assert ledger(*said)[-1] == "I prefer tea."


def test_forms_of_a_word_are_the_same_subject():
    old, new = "Sending parcels costs 4 EUR.", "Sendin parcel costs 5 EUR."
    assert ledger(old, "Call me Fen.", new)[-1] == old


def test_what_is_repeated_word_for_word_is_filler():
    once, twice = "The lamp costs 4 EUR and 20 ct.", "The queue must stay at 40."
    assert ledger(twice, once, twice)[0] == once
    assert ledger(twice, once)[0] == twice


def test_filler_stands_where_it_binds_and_has_a_value():
    said = "The queue must stay."
    assert ledger(said, said) == [said, said]
    assert ledger("The queue is 40.", "The queue is 40.") == []


def test_a_short_message_stands_as_a_whole():
    """The second sentence is the condition of the first."""
    text = "The limit is 500 EUR. Exceed it only with approval."
    assert text in compacted(user(*FILLER, text, *FILLER), 80, 1)[0]


@pytest.mark.parametrize(
    ("num", "is_whole"), [(300, True), (390, True), (410, False), (500, False)]
)
def test_a_message_of_up_to_400_characters_stands_as_a_whole(num, is_whole):
    rule = "Never push."
    talk = f"{'a' * (num - len(rule) - 1)}."
    assert (ledger(f"{talk} {rule}") == [f"{talk} {rule}"]) is is_whole


def test_of_a_long_message_the_sentences_that_bind_stand():
    text = f"{'We talked about this and that. ' * 20}Never push to main before the review of R-12."
    summary = compacted(user(text, *FILLER), 120, 1)[0]
    assert "Never push to main before the review of R-12." in summary


def test_of_two_equally_strong_the_shorter_comes_first_and_then_the_newer():
    assert ledger("Never run the very old engine.", "Never run it.")[0] == "Never run it."
    assert ledger("Never eat figs.", "Never eat nuts.")[0] == "Never eat nuts."


def test_a_label_is_left_out_where_the_statement_stands_without_it():
    assert ledger("FACT: It rains.", "RULE: Never push to main.") == [
        "FACT: It rains.",
        "Never push to main.",
    ]


def test_a_label_that_may_change_the_meaning_stays():
    assert ledger("NO LONGER TRUE: Never push.") == ["NO LONGER TRUE: Never push."]


@given(st.lists(st.sampled_from([*STATEMENTS, *FILLER]), max_size=12), st.integers(0, 400))
def test_a_summary_never_takes_more_than_it_may(texts, max_chars):
    assert all(len(text) <= max_chars for text in compacted(user(*texts), max_chars, 2))
