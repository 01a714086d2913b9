"""One ranking of two lists."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.protocols import Query
from agentmem.retrieval.fusion.rrf import Fusion, dense_query, rank
from agentmem.types import BranchId
from tests.retrieval.entries import entry, ids, indexed, query, said

NAN, NOT_FOUND = float("nan"), float("-inf")


def texts(number):
    """Messages of the length at which the dense list weighs what the other does."""
    return said(*["x" * 120] * number)


def scores(*values):
    return np.array(values, np.float32)


def ranked(entries, lexical, dense, asked: Query | None = None):
    message_table, _ = indexed(entries)
    return rank(
        message_table, scores(*lexical), None if dense is None else scores(*dense), asked or query()
    )


def test_words_alone():
    found = ranked(texts(3), [1, 0, 2], None)
    assert found.rows.tolist() == [2, 0]
    assert found.ranks["lexical"].tolist() == [1, 2]
    assert "dense" not in found.ranks


def test_what_both_lists_have_high_comes_first():
    found = ranked(texts(4), [3, 2, 1, 0], [0.1, 0.8, 0.2, 0.9])
    assert found.rows[0] == 1
    assert dict(zip(found.rows.tolist(), found.ranks["dense"].tolist(), strict=True)) == {
        0: 4,
        1: 2,
        2: 3,
        3: 1,
    }
    assert found.ranks["lexical"].tolist()[found.rows.tolist().index(3)] == 0


def test_what_nothing_speaks_for_is_not_found():
    assert ranked(texts(3), [0, 0, 1], [0.1, 0.9, 0.1]).rows.tolist() == [2, 1]
    assert ranked(texts(2), [0, 0], None).rows.tolist() == []


def test_what_is_not_embedded_yet_stands_where_its_words_put_it():
    found = ranked(texts(3), [3, 2, 1], [NAN, 0.9, 0.1])
    assert found.rows[0] == 0
    assert found.ranks["dense"].tolist()[0] == 0


def test_a_row_is_not_worse_off_for_being_embedded_before_the_others():
    """The only vector would be the mean of all vectors, and below the words of a neighbour."""
    found = ranked(texts(4), [3, 1, 0, 0], [0.9, NAN, NAN, NAN])
    assert found.rows.tolist()[0] == 0
    assert found.ranks["dense"].tolist()[0] == 1


@pytest.mark.slow
@given(st.lists(st.booleans(), min_size=2, max_size=12).filter(any))
def test_the_best_by_words_and_meaning_is_first_however_many_are_embedded(is_embedded):
    number = len(is_embedded)
    words = [3.0, 1.0, *[0.0] * (number - 2)]
    meaning = [0.9, *[0.0] * (number - 1)]
    dense = [one if there else NAN for one, there in zip(meaning, is_embedded, strict=True)]
    assert ranked(texts(number), words, dense).rows.tolist()[0] == 0


def test_what_an_inexact_search_did_not_find_stands_last():
    found = ranked(texts(3), [0, 2, 1], [NOT_FOUND, 0.9, 0.5])
    assert 0 not in found.rows.tolist()
    assert ranked(texts(2), [1, 2], [NOT_FOUND, NOT_FOUND]).rows.tolist() == [1, 0]


def test_of_two_that_mean_the_same_the_shorter_comes_first():
    found = ranked(said("x" * 400, "x" * 40, "x" * 100), [0, 0, 0], [0.9, 0.899, 0.1])
    assert found.rows.tolist() == [1, 0]


def test_where_no_word_is_found_meaning_alone_decides():
    """Else what was said last would stand first in a list that has nothing to say."""
    found = ranked(texts(6), [0] * 6, [0.9, 0.5, 0.1, 0.1, 0.4, 0.8])
    assert found.rows.tolist()[:3] == [0, 5, 1]


def test_cues_make_no_list_of_their_own_where_no_word_is_found():
    entries = said("My cat is old.", "I moved in 2021.", "It was on 3 May 2020.", "Well, well.")
    found = ranked(entries, [0] * 4, [0.9, 0.1, 0.2, 0.3])
    assert found.rows.tolist()[0] == 0


def test_rows_without_a_word_of_the_question_stand_alike_behind_those_with_one():
    found = ranked(texts(5), [0, 0, 0, 2, 1], [0.9, 0.8, 0.7, 0.0, 0.0])
    assert found.rows.tolist()[0] == 3
    assert found.rows.tolist().index(0) < found.rows.tolist().index(1)


def test_only_what_may_be_seen_counts():
    asked = query(visible={BranchId(1): (2, 3)})
    found = ranked(texts(4), [9, 1, 2, 8], [0.9, 0.1, 0.2, 0.8], asked)
    assert found.rows.tolist() == [2, 1]
    assert found.ranks["lexical"].tolist() == [1, 2]
    assert ranked(texts(1), [1], [0.5], query(visible={})).rows.tolist() == []


def test_no_more_than_are_wanted():
    found = ranked(texts(3), [1, 2, 3], None, query(limit=2))
    assert found.rows.tolist() == [2, 1]
    assert ranked(texts(1), [1], None, query(limit=0)).rows.tolist() == []


def test_an_embedder_of_english_has_no_say_in_chinese():
    lexical, dense = [2, 1, 0], [0.1, 0.9, 0.8]
    entries = texts(3)
    assert ranked(entries, lexical, dense, query("where is it")).rows[0] == 1
    assert ranked(entries, lexical, dense, query("在哪里")).rows[0] == 0


def test_one_of_many_languages_has():
    message_table, _ = indexed(texts(3))
    lexical, dense = scores(2, 1, 0), scores(0.1, 0.9, 0.8)
    found = rank(message_table, lexical, dense, query("在哪里"), Fusion(unspaced=1))
    assert found.rows[0] == 1


def test_no_cue_is_needed():
    entries = [entry(1, "x", speaker="Anna"), entry(2, "x", speaker="Bert")]
    message_table, _ = indexed(entries)
    found = rank(message_table, scores(1, 2), None, query("What did Anna say?"), Fusion(boosts=()))
    assert found.rows.tolist() == [1, 0]


def test_cues_push_in_both_lists():
    entries = [entry(i, "x", speaker=name) for i, name in ((1, "Anna"), (2, "Bert"), (3, "Bert"))]
    lexical, dense = [1, 1.2, 0], [0.4, 0.5, 0.1]
    assert ranked(entries, lexical, dense, query("What was said?")).rows[0] == 1
    assert ranked(entries, lexical, dense, query("What did Anna say?")).rows[0] == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_the_best_come_first_and_each_once(pairs):
    lexical, dense = zip(*pairs, strict=True)
    message_table, _ = indexed(said(*["x"] * len(pairs)))
    found = rank(message_table, scores(*lexical), scores(*dense), query())
    assert len(set(found.rows.tolist())) == len(found.rows)
    assert (np.diff(found.scores) <= 0).all()
    assert found.rows.dtype == np.int64
    assert found.scores.dtype == np.float32
    # Whatever has a word of the question is found.
    assert set(np.flatnonzero(scores(*lexical)).tolist()) <= set(found.rows.tolist())
    assert ids(message_table, found.rows) == [row + 1 for row in found.rows]


@pytest.mark.parametrize(
    ("text", "names", "bare"),
    [
        ("When did Anna go to Lisbon?", ["Anna"], "When did go to Lisbon?"),
        ("What is Anna's job?", ["Anna"], "What is job?"),
        ("Did Anna Smith pay?", ["Anna", "Anna Smith"], "Did pay?"),
        ("Annabel and Anna", ["Anna"], "Annabel and"),
        ("Anna?", ["Anna"], "Anna?"),
        ("What did the user say?", ["user", "assistant"], "What did the user say?"),
        ("小明养了什么", ["小明"], "养了什么"),
        ("(C++)", ["C++"], "(C++)"),
    ],
)
def test_names_are_taken_out_of_what_is_embedded(text, names, bare):
    assert dense_query(text, names) == bare
