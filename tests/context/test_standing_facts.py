"""What binds or informs, by its words, its values and its speaker."""

import pytest

from agentmem.context.salience import sentences_of
from agentmem.context.standing_facts import MIN_STRENGTH, label_apart, num_words, strength
from agentmem.protocols import Passage
from agentmem.types import Role

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
TALK = ["Let us look at the layout of the page again.", "Sounds fine, let us go on with it."]


def strength_of(text, role=Role.USER):
    words = [
        word
        for sentence in sentences_of([Passage(position=1, role=role, text=text)])
        for word in sentence.words
    ]
    return strength(text, words, role)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_statement_that_binds_or_informs_stands(statement):
    assert strength_of(statement) >= MIN_STRENGTH


@pytest.mark.parametrize(
    "text", [*TALK, "", "Okay, noted: never mind.", "Good morning!", "What is the limit?"]
)
def test_talk_does_not_stand(text):
    assert strength_of(text) < MIN_STRENGTH


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The page is blue.", 0),
        ("The page must be blue.", 2),
        ("The page is blocked.", 1),
        ("I prefer the blue page.", 1),
        ("The page is called home.", 1),
        ("The page 4711 is blue.", 1),
        ("The page must never be blue.", 4),
    ],
)
def test_a_signal_counts_once_and_one_that_binds_twice(text, expected):
    assert strength_of(text) == expected


def test_two_signals_of_a_kind_count_and_not_three():
    assert strength_of("1 2 3 4 5 6 7 8") == strength_of("1 2") == 2
    assert strength_of("It must always never be so.") == strength_of("It must never be so.") == 4


def test_a_label_is_worth_three_signals_at_least():
    assert strength_of("NOTE: The page is blue.") == strength_of("TODO: a page.") == 3
    assert strength_of("RULE: It must never be blue.") == 4


def test_an_ordinary_phrase_before_a_colon_is_no_label():
    assert strength_of("Well then: the page is blue.") == 0


def test_what_the_assistant_says_counts_half_and_a_result_of_a_tool_a_quarter():
    rule = "It must never run."
    assert strength_of(rule, Role.ASSISTANT) == strength_of(rule) / 2
    assert strength_of(rule, Role.TOOL) == strength_of(rule) / 4


def test_a_result_of_a_tool_stands_only_with_four_signals():
    assert strength_of("It must never run.", Role.TOOL) >= MIN_STRENGTH
    assert strength_of("It must run on 4711.", Role.TOOL) < MIN_STRENGTH


@pytest.mark.parametrize("mark", ["?", "\uff1f", "\u061f", "\u037e"])
def test_a_question_stands_only_where_it_binds_more_than_once(mark):
    assert strength_of(f"Is it called Aurora{mark}") < MIN_STRENGTH
    assert strength_of(f"Must it be so{mark}") < MIN_STRENGTH
    assert strength_of(f"Must it never be before 22:00{mark}") >= MIN_STRENGTH


def test_an_acknowledgement_stands_only_where_it_has_every_signal():
    assert strength_of("Understood. It must never be so.") < MIN_STRENGTH
    assert strength_of("Understood. It must never be so on 4711.") >= MIN_STRENGTH


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("FACT: It rains.", ["FACT: ", "It rains."]),
        ("Safety rule: Ask first.", ["Safety rule: ", "Ask first."]),
        ("请记住：不要删除。", ["请记住：", "不要删除。"]),  # noqa: RUF001 - as it is typed
    ],
)
def test_a_label_that_only_classifies_is_apart(text, parts):
    assert label_apart(text) == parts


@pytest.mark.parametrize(
    "text", ["NOT TRUE: It rains.", "Former rule: Ask first.", "It rains.", "FACT:", "Do not: run."]
)
def test_a_label_that_may_change_the_meaning_is_not_apart(text):
    assert label_apart(text) == [text]


def test_the_words_of_a_label_are_no_signals():
    assert num_words("Safety rule: ") == 2
    assert strength_of("User preference: blue.") == 3


def test_a_question_counts_two_fifths():
    assert strength_of("Must it never be over 5 EUR?") == pytest.approx(
        0.4 * strength_of("It must never be over 5 EUR.")
    )
