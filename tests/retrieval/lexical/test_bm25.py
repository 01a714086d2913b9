"""The index of words, beside a plain one that does everything anew."""

import itertools
import math
from collections import Counter
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.retrieval.lexical.bm25 import K1, B, LexicalIndex, searched_text
from agentmem.retrieval.lexical.neighbour_smoothing import DAMPED, NEAR, SMOOTHINGS, Smoothing
from agentmem.retrieval.text.analyzer import Analyzer
from agentmem.types.moments import PAUSE_S
from tests.retrieval.entries import entry, said

WORDS = ("cat", "dog", "museum", "running", "Lisbon", "beach", "the", "猫")


def plain_scores(entries, text, smoothing=NEAR, *, is_sublinear=False):
    """BM25 with borrowed words, as it is defined."""
    analyzer = Analyzer()
    counts = [Counter(analyzer.passage(searched_text(one)).terms) for one in entries]
    near = [Counter() for _ in entries]
    lengths = [0.0] * len(entries)
    for row, other, share in lent(entries, smoothing):
        total, weight = counts[other].total(), share
        if row != other and smoothing.max_lent is not None:
            weight *= min(1, smoothing.max_lent / total)
        for term, count in counts[other].items():
            near[row][term] += weight * count
        lengths[row] += weight * total
    mean = sum(lengths) / len(entries) if entries else 0
    scores = [0.0] * len(entries)
    for (term,), times in Counter(analyzer.query(text, {"english"})).items():
        df = sum(term in one for one in counts)
        if not df:
            continue
        idf = math.log(1 + (len(entries) - df + 0.5) / (df + 0.5))
        for row, count in enumerate(one[term] for one in near):
            norm = K1 * (1 - B + B * lengths[row] / mean)
            asked = math.sqrt(times) if is_sublinear else times
            scores[row] += asked * idf * count * (K1 + 1) / (count + norm)
    return scores


def lent(entries, smoothing):
    """Who borrows from whom: row, other row, weight; each from itself as well."""
    for row, one in enumerate(entries):
        yield row, row, 1.0
        branch = [i for i, other in enumerate(entries) if other.branch_id == one.branch_id]
        place = branch.index(row)
        for step, weight in ((-1, smoothing.earlier), (1, smoothing.later)):
            at = place
            for distance in range(1, smoothing.reach + 1):
                following = at + step
                if not 0 <= following < len(branch):
                    break
                times = sorted(entries[branch[i]].created_at for i in (at, following))
                if times[1] - times[0] > timedelta(seconds=PAUSE_S):
                    break
                at = following
                yield row, branch[at], weight**distance


def index_of(entries):
    index = LexicalIndex()
    index.add(entries, range(len(entries)))
    return index


@st.composite
def conversations(draw):
    """Messages of a few branches whose turns mix, with pauses."""
    words = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6)
    texts = draw(
        st.lists(st.tuples(words, st.sampled_from([1, 1, 1, 30])), min_size=1, max_size=14)
    )
    minute, entries = 0, []
    for number, (words, times) in enumerate(texts, start=1):
        minute += draw(st.sampled_from([1, 1, 30, 61, 300]))
        branch = draw(st.integers(1, 2))
        entries.append(entry(number, " ".join(words * times), minute=minute, branch=branch))
    return entries


@pytest.mark.slow
@given(
    conversations(),
    st.sampled_from(["cat", "running dogs in Lisbon", "猫 museum museum", "x"]),
    st.sampled_from(SMOOTHINGS),
    st.booleans(),
)
def test_equals_the_plain_one(entries, text, smoothing, is_sublinear):
    index = index_of(entries)
    # The plain one takes every text for English, as these are.
    found = index.scores(text, smoothing, is_sublinear=is_sublinear)
    expected = plain_scores(entries, text, smoothing, is_sublinear=is_sublinear)
    assert found == pytest.approx(expected, abs=1e-4)
    assert found.dtype == np.float32


@pytest.mark.slow
@given(conversations(), st.data())
def test_portions_make_no_difference(entries, data):
    whole, index, row = index_of(entries), LexicalIndex(), 0
    while row < len(entries):
        size = data.draw(st.integers(1, 5))
        portion = entries[row : row + size]
        index.add(portion, range(row, row + len(portion)))
        index.scores("cat")
        row += size
    assert index.scores("cat dog 猫") == pytest.approx(whole.scores("cat dog 猫"))


@pytest.mark.slow
@given(conversations(), st.data())
def test_a_removed_message_is_as_if_never_said(entries, data):
    index = index_of(entries)
    places = range(len(entries))
    gone = data.draw(st.lists(st.sampled_from(places), unique=True, max_size=6))
    first = data.draw(st.integers(0, len(gone)))
    for rows in (gone[:first], gone[first:]):
        index.remove(rows)
    later = entry(99, "cat and beach", minute=entries[-1].created_at.minute + 10_000)
    index.add([later], range(len(entries), len(entries) + 1))
    left = [one for row, one in enumerate(entries) if row not in gone]
    anew = index_of([*left, later])
    kept = [row for row in places if row not in gone] + [len(entries)]
    for text, smoothing in itertools.product(("cat dog", "猫 museum", "beach"), SMOOTHINGS):
        scores = index.scores(text, smoothing)
        assert scores[kept] == pytest.approx(anew.scores(text, smoothing), abs=1e-5)
        assert not scores[gone].any()


def test_no_word_of_a_removed_message_is_kept():
    index = index_of(said("my password is swordfish", "hello there"))
    index.remove([0])
    assert "swordfish" not in index._postings
    assert not index.scores("swordfish").any()


def test_an_answer_borrows_the_words_of_its_question():
    scores = index_of(said("Where is the museum?", "Just behind the station.", "Fine.")).scores(
        "museum"
    )
    assert scores[0] > scores[1] > scores[2] > 0


def test_a_long_reply_lends_no_more_than_its_share():
    reply = " ".join(["museum", *["word"] * 199])
    index = index_of(said("Fine.", reply, "Fine."))
    assert index.scores("museum", DAMPED)[0] < index.scores("museum", NEAR)[0] / 2
    one = Smoothing(earlier=0.8, later=0.8, reach=8, within=0.5, max_lent=50)
    assert one.lent(np.array([200.0, 20.0])).tolist() == [50.0, 20.0]


def test_nothing_is_borrowed_over_a_pause_or_from_a_branch_beside():
    entries = [
        entry(1, "museum", minute=0),
        entry(2, "fine", minute=1, branch=2),
        entry(3, "fine", minute=100),
    ]
    assert index_of(entries).scores("museum")[1:].tolist() == [0, 0]


def test_speaker_and_date_are_words_too():
    index = index_of([entry(1, "hello", speaker="Anna"), entry(2, "hello", minute=60 * 24 * 200)])
    assert index.scores("Anna")[0] > 0
    assert index.scores("July")[1] > 0
    assert index.scores("2026-07")[1] > 0


def test_a_german_text_is_found_by_a_bare_word():
    index = index_of(said("Wir haben das Hotel für die Reise nach Lissabon gebucht.", "Gut!"))
    assert index.scores("buchen Reisen")[0] > 0


def test_nothing_in_an_empty_index():
    index = LexicalIndex()
    assert len(index) == 0
    assert index.scores("cat").shape == (0,)
    index.add(said("cat"), range(1))
    index.remove([0])
    index.remove([])
    assert index.scores("cat").tolist() == [0]


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
@pytest.mark.parametrize("places", [(0,), (0, 1), (2, 60), (150,)])
def test_a_passage_scores_by_its_words_and_a_share_of_the_rest(smoothing, places):
    words = ["museum" if n in places else "tram" for n in range(160)]
    index = index_of([entry(1, " ".join(words))])
    parts = [words[at : at + 40] for at in range(0, 160, 40)]
    terms = {0: [index.passage_terms(" ".join(part)) for part in parts]}

    found = index.passage_scores("museum", terms, smoothing)[0]

    size = index._lengths.values[0]
    head = size - 160  # the speaker and the date, which count for each passage
    share = smoothing.within * min(size, smoothing.max_lent or size) / size
    idf = math.log(1 + 0.5 / 1.5)
    expected = []
    for part in parts:
        length = 40 + head + share * (size - 40 - head)
        count = part.count("museum") + share * (len(places) - part.count("museum"))
        norm = K1 * (1 - B + B * length / size)
        expected.append(idf * count * (K1 + 1) / (count + norm))
    assert found + index.scores("museum", smoothing)[0] == pytest.approx(expected, abs=1e-4)


def test_a_passage_that_is_the_whole_message_scores_as_the_message():
    texts = ("Where is the museum?", "The museum is behind the station.", "Fine.")
    index = index_of(said(*texts))
    terms = {row: [index.passage_terms(text)] for row, text in enumerate(texts)}
    for smoothing in SMOOTHINGS:
        found = index.passage_scores("museum station", terms, smoothing)
        assert np.concatenate(list(found.values())) == pytest.approx(np.zeros(3), abs=1e-6)
