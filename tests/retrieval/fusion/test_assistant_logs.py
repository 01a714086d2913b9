"""Which log is one of a user and an assistant, and what speaks for its rows."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.retrieval.fusion.assistant_logs import (
    LOOK_BACK,
    NEXT_TURN,
    LogPriors,
    is_assistant_log,
    looks_back,
)
from agentmem.retrieval.fusion.rrf import Fusion, rank
from tests.retrieval.entries import entry, indexed, query

REPLY = "a long reply " * 60


def log(*entries):
    return indexed(entries)[0]


def turns(*, speaker=None, reply=REPLY):
    one = entry(1, "I like trains.", role="user", speaker=speaker)
    other = entry(2, reply, minute=1, role="assistant", speaker=speaker and "Bot")
    return [one, other]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        (turns(), True),
        (turns(speaker="Anna"), False),
        (turns(reply="I like them too."), False),
        (turns()[:1], False),
        (turns()[1:], False),
        ([], False),
    ],
)
def test_a_log_is_one_of_an_assistant_where_roles_write_at_different_length(entries, expected):
    assert is_assistant_log(log(*entries)) is expected


def test_a_log_with_results_of_tools_is_one_of_an_assistant():
    said = [entry(1, "Find it."), entry(2, "I have it.", role="assistant")]
    results = [entry(n, "found", role="tool", speaker="search") for n in range(3, 9)]
    assert is_assistant_log(log(*said)) is False
    assert is_assistant_log(log(*said, *results)) is True
    people = [entry(n, "x", speaker="Anna") for n in range(9, 11)]
    assert is_assistant_log(log(*said, *results, *people)) is False


def test_what_was_deleted_does_not_count():
    table = log(*turns(speaker="Anna"), *(entry(n, "x", role="user") for n in (3, 4)))
    table.remove([1, 2])
    assert is_assistant_log(table) is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("When did I move to Lisbon?", True),
        ("You know my dog. What is he called?", True),
        ("我的狗叫什么名字？", True),  # noqa: RUF001 - as it is typed
        ("Yes, the second one, and book it.", False),
        ("Good. I did that. It worked. And what is next?", False),
        ("", False),
    ],
)
def test_a_short_question_looks_back(text, expected):
    assert looks_back(text) is expected


def test_what_the_user_said_is_worth_more_and_a_reply_costs_its_tokens():
    table = log(*turns(), entry(3, "I like trains.", minute=2, role="assistant"))
    user, long, short = LOOK_BACK.of_rows(table, np.arange(3))
    assert user - short == pytest.approx(2)
    # A long reply is shown by its passages, so it costs one of 120 tokens.
    assert len(REPLY) / 4.2 > 120
    assert short - long == pytest.approx(0.7 * math.log((120 + 24) / (14 / 4.2 + 24)))


def test_a_passage_costs_its_tokens_and_what_a_message_begins_with_is_worth_more():
    found = LOOK_BACK.of_passages(4200, np.array([420.0, 420.0, 84.0, 420.0, 420.0]))
    prices = 0.7 * np.log(np.array([124, 124, 44, 124, 124]) / (120 + 24))
    assert found == pytest.approx(-0.4 * np.array([0, 1, 2, 3, 3]) - prices)


def test_the_newest_sitting_and_its_first_message_are_worth_more_in_a_next_turn():
    table = log(*(entry(n, "x", minute=minute) for n, minute in enumerate((0, 1, 100, 300), 1)))
    plain = LogPriors(user=0.0, price=0.0, recency=NEXT_TURN.recency, opening=NEXT_TURN.opening)
    found = plain.of_rows(table, np.arange(4))
    fades = [2 * math.exp(-age / 20) for age in (3, 3, 2, 1)]
    assert found == pytest.approx(np.add(fades, [1, 0, 1, 1]))


@pytest.mark.slow
@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=12, unique=True), st.randoms())
def test_the_order_of_the_rows_makes_no_difference_to_their_priors(minutes, random):
    entries = [entry(n, "x" * n, minute=minute) for n, minute in enumerate(minutes, 1)]
    shuffled = random.sample(entries, len(entries))
    one, other = (
        dict(zip(table.message_ids.tolist(), found.tolist(), strict=True))
        for table in (log(*entries), log(*shuffled))
        for found in [NEXT_TURN.of_rows(table, np.arange(len(entries)))]
    )
    assert one == pytest.approx(other)


def test_priors_move_rows_in_both_lists():
    table = log(*turns())
    scores = np.array([1, 1.1], np.float32)
    fusion = Fusion(priors=LOOK_BACK)
    for dense in (None, scores):
        assert rank(table, scores, dense, query(), fusion).rows.tolist() == [0, 1]


def test_the_dense_list_counts_less_for_a_next_turn():
    assert Fusion(priors=LOOK_BACK).dense_weight("Where is it?") == 1
    assert Fusion(priors=NEXT_TURN).dense_weight("Book it.") == pytest.approx(0.7)


def test_no_rows_have_no_priors():
    assert NEXT_TURN.of_rows(log(), np.zeros(0, np.int64)).tolist() == []
