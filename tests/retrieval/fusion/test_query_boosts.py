"""What a question says of who answered it, and when."""

import pytest

from agentmem.retrieval.fusion.query_boosts import (
    AskedOfSelf,
    AsksItself,
    NamedDate,
    NamedSpeaker,
    TellsWhen,
    dates_in,
)
from tests.retrieval.entries import entry, indexed, said


def boosts(boost, text, entries):
    found = boost.of_rows(text, indexed(entries)[0])
    return None if found is None else found.tolist()


NAMED = [
    entry(1, "Where were you?", speaker="Anna"),
    entry(2, "In Lisbon.", speaker="Bert", role="assistant"),
    entry(3, "It was nice.", speaker="Bert", role="assistant"),
]


def test_who_is_named_is_pushed():
    assert boosts(NamedSpeaker(), "Where was Bert?", NAMED) == [0, 1.5, 1.5]
    assert boosts(NamedSpeaker(), "Where were Anna and Bert?", NAMED) == [1.5, 1.5, 1.5]
    assert boosts(NamedSpeaker(), "Where?", NAMED) is None


def test_who_is_called_by_a_name_is_pushed():
    entries = [
        entry(1, "I was in Lisbon."),
        *[entry(i, "Thanks, Anna! Fine.", role="assistant") for i in (2, 3, 4)],
    ]
    assert boosts(NamedSpeaker(), "Where was Anna?", entries) == [1.5, 0, 0, 0]


def test_a_question_of_somebody_with_a_name_is_less_of_an_answer():
    assert boosts(AsksItself(), "Where?", NAMED) == [-0.6, 0, 0]


def test_what_a_user_asks_an_assistant_is_not():
    assert boosts(AsksItself(), "Where?", said("Can you book the hotel in Lisbon?")) == [0]


ROLES = [entry(1, "x"), entry(2, "x", role="assistant"), entry(3, "x", role="tool")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When did I go to Lisbon?", [0.75, 0, 0]),
        ("What's my budget?", [0.75, 0, 0]),
        ("where did i go", [0.75, 0, 0]),
        ("What did you recommend?", [0, 0.75, 0]),
        ("What did you tell me about it?", [0, 0.75, 0]),
        ("Can you remind me where I went?", [0.75, 0, 0]),
        ("Could you book a hotel?", None),
        ("Wann war ich in Lissabon?", [0.75, 0, 0]),
        ("Où est-ce que j'ai mangé?", [0.75, 0, 0]),
        ("我去过哪里", [0.75, 0, 0]),
        ("你推荐了什么", [0, 0.75, 0]),
        ("我们去哪里", None),
        ("Where is it? It was mild and mystic.", None),
    ],
)
def test_who_asks_about_himself_has_said_it_himself(text, expected):
    assert boosts(AskedOfSelf(), text, ROLES) == expected


def test_among_people_with_names_there_is_no_me():
    assert boosts(AskedOfSelf(), "Where was I?", NAMED) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I went there last week.", 0.3),
        ("We meet on Monday", 0.3),
        ("Wir waren gestern da.", 0.3),
        ("我们上周去了", 0.3),
        ("That is nice, and lasting.", 0),
    ],
)
def test_a_turn_that_says_when_tells_of_something(text, expected):
    assert boosts(TellsWhen(), "Where?", said(text)) == [expected]


DAYS = [entry(i, "x", minute=60 * 24 * i) for i in (0, 1, 31, 365)]  # 1, 2 Jan, 1 Feb 2026, 2027


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What happened in February?", [0, 0, 1, 0]),
        ("What happened in 2027?", [0, 0, 0, 1]),
        ("What happened on 2 January 2026?", [2, 3, 1, 1]),
        ("What happened on 2026-01-02?", [2, 3, 1, 1]),
        ("2026年1月2日怎么了", [2, 3, 1, 1]),
    ],
)
def test_a_date_pushes_what_was_said_then(text, expected):
    assert boosts(NamedDate(), text, DAYS) == expected


def test_no_date_says_nothing():
    assert boosts(NamedDate(), "What may I march for on day 2?", DAYS) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on May 7th, 2023", ({2023}, {5}, {7})),
        ("the 7th of May", (set(), {5}, {7})),
        ("in may", (set(), set(), set())),
        ("room 2047b, call 12023", ({2047}, set(), set())),
        ("12月31日", (set(), {12}, {31})),
    ],
)
def test_dates_as_they_are_written(text, expected):
    assert dates_in(text) == expected
