"""Which part of a long message is found."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.protocols import Embedding, Hit
from agentmem.retrieval.fusion.assistant_logs import LogPriors
from agentmem.retrieval.fusion.rrf import RankedList, Ranking
from agentmem.retrieval.index import passage_ranking
from agentmem.retrieval.index.passage_ranking import (
    DIVIDED,
    Passages,
    passage_similarities,
    rank_passages,
)
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.testing import HashingEmbedder
from agentmem.types import MessageId
from agentmem.types.passages import split_passages
from tests.builders import say, stored
from tests.retrieval.asking import ask
from tests.retrieval.retrieval_store import SCOPE, USER, ListRetrievalStore

FILLER = "The weather was fine and nothing of any note took place on that day. "
ANSWER = "The ferry to Hvar costs ninety kuna. "
REPLY = FILLER * 20 + ANSWER + FILLER * 20


def searched(recall, text, branch, **options):
    return recall.search(ask(text, visible={branch: (1, 999)}, **options))


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_of_a_long_message_the_passage_with_the_words_is_found(retrieval_store, recall, role):
    branch = retrieval_store.branch()
    retrieval_store.append(branch, "hello", say(role, REPLY), "fine")
    assert recall.wait(10)

    found = searched(recall, "What does the ferry to Hvar cost?", branch)
    best = next(hit for hit in found if hit.stored.message.text == REPLY)

    assert ANSWER.strip() in best.text
    assert len(best.text) < len(REPLY) / 4
    assert best.passages[0] in split_passages(REPLY)


def test_a_short_message_is_found_as_a_whole(retrieval_store, recall):
    branch = retrieval_store.branch()
    retrieval_store.append(branch, ANSWER, FILLER)

    best = searched(recall, "ferry to Hvar", branch)[0]

    assert best.passages == ()
    assert best.text == ANSWER


def test_several_passages_of_one_message_are_several_hits(retrieval_store, recall):
    branch = retrieval_store.branch()
    twice = FILLER * 20 + ANSWER + FILLER * 20 + "The ferry to Hvar leaves at nine. " + FILLER * 20
    retrieval_store.append(branch, twice, *[FILLER] * 5)

    found = searched(recall, "ferry to Hvar", branch)
    ours = [hit for hit in found if hit.stored.message.text == twice]

    assert {hit.text.count("Hvar") for hit in ours[:2]} == {1}
    assert sorted(hit.passages[0] for hit in ours) == list(split_passages(twice))
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


def test_a_passage_has_the_similarity_of_the_chunk_that_it_is_in():
    text = FILLER * 10 + "The kettle boiled. " * 40 + FILLER * 10
    ranges = split_passages(text)
    first, last = text.index("The kettle"), text.rindex("boiled.")
    parts = [(0, first, (0, 1)), (first, last, (1, 0)), (last, len(text), (0.2, 1))]
    chunks = [
        Embedding(message_id=MessageId(1), first=a, last=b - 1, vector=np.array(v, "<f4").tobytes())
        for a, b, v in parts
    ]

    found = passage_similarities(ranges, chunks, np.array([1, 0], "<f4"))

    assert {"kettle" in text[slice(*ranges[i])] for i in np.flatnonzero(found == 0)} == {True}
    assert found.min() == -1
    assert passage_similarities(ranges, [], np.array([1, 0], "<f4")) is None
    assert passage_similarities(ranges, chunks, np.array([1, 0, 0], "<f4")) is None


def ranking_of(name, **fields):
    """One list of two messages, of which the first is divided."""
    fields = {"priorities": [3.0, 2.0], "weights": [1.0, 1.0], "is_silent": [False] * 2} | fields
    arrays = {key: np.array(values) for key, values in fields.items()}
    return Ranking(
        rows=np.arange(2),
        scores=np.zeros(2, np.float32),
        lists={name: RankedList(spread=0.5, **arrays)},
        ranks={},
        times=np.ones(2, np.int64),
    )


def two_hits():
    said = stored(say("assistant", REPLY), say("user", ANSWER))
    return [Hit(stored=one, score=1.0) for one in said]


def ranked(name, moves, priors=None, **fields):
    """The first characters of the passages in the order in which they are ranked."""
    found = rank_passages(
        two_hits(),
        ranking_of(name, **fields),
        {0: Passages(ranges=((0, 900), (900, 1000), (1000, 1900)), terms=(), is_all=True)},
        {name: {0: np.array(moves)}},
        priors,
    )
    return [hit.passages[0][0] if hit.passages else None for hit in found]


def test_a_passage_has_the_priority_of_its_message_moved_by_its_score():
    # In standard deviations, of which a list has 0.5 for each.
    assert ranked("lexical", [0.1, -0.4, -0.6]) == [0, 900, None, 1000]
    assert ranked("lexical", [-0.6, -0.6, 0.1]) == [1000, None, 900, 0]


def test_a_passage_costs_by_its_length_and_its_place_in_a_log_of_an_assistant():
    priors = LogPriors(user=0.0, price=0.7)
    # The first 3 - 0.35, the second 3 - 0.4 + 0.77, the third 3 - 0.8 - 0.35; the other message 2.
    assert ranked("lexical", [0.0, 0.0, 0.0], priors) == [900, 0, None, 1000]
    assert ranked("lexical", [0.0, -0.7, 0.1], priors) == [0, 1000, None, 900]


def test_a_short_passage_has_more_weight_in_the_dense_list_of_a_chat_of_people():
    assert ranked("dense", [0.0, 0.0, 0.0])[0] == 900


def test_of_a_message_of_very_many_passages_those_with_the_words_are_compared(
    retrieval_store, open_recall, monkeypatch
):
    analyzed = []
    terms_of = LexicalIndex.passage_terms
    monkeypatch.setattr(
        LexicalIndex,
        "passage_terms",
        lambda self, text: (analyzed.append(text), terms_of(self, text))[1],
    )
    branch = retrieval_store.branch()
    retrieval_store.append(branch, FILLER * 700 + ANSWER + FILLER * 700, "fine")

    found = searched(open_recall(), "What does the ferry to Hvar cost?", branch)

    assert len(analyzed) == 64
    assert ANSWER.strip() in found[0].text


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from([ANSWER, FILLER, REPLY, FILLER * 30]), min_size=1, max_size=8),
    st.booleans(),
)
def test_a_lower_limit_finds_the_first_of_the_same_hits(texts, has_vectors):
    from agentmem.retrieval import HybridRetriever  # noqa: PLC0415 - a retriever for each example

    store = ListRetrievalStore()
    branch = store.branch()
    store.append(branch, *(f"{text} {n}" for n, text in enumerate(texts)))
    recall = HybridRetriever(HashingEmbedder() if has_vectors else None).open_index(store)
    try:
        assert recall.wait(10)
        every = searched(recall, "ferry to Hvar", branch, limit=99)
        for limit in range(len(texts)):
            some = searched(recall, "ferry to Hvar", branch, limit=limit)
            assert some == every[: len(some)]
            assert len({hit.stored.id for hit in some}) <= limit
    finally:
        recall.close()


def test_of_a_deleted_message_no_word_is_kept(retrieval_store, open_recall):
    branch = retrieval_store.branch()
    (first,) = retrieval_store.append(branch, REPLY)
    recall = open_recall()
    assert searched(recall, "ferry", branch)[0].passages
    cache = recall._library.get(USER)._passage_cache
    assert cache.num_passages == len(split_passages(REPLY))
    retrieval_store.empty(first)

    recall.forget(SCOPE, [first])

    assert "ferry" not in repr(cache._known)
    assert cache.num_passages == 0
    assert searched(recall, "ferry", branch) == ()


def test_a_bounded_number_of_passages_stays_analyzed(retrieval_store, open_recall, monkeypatch):
    monkeypatch.setattr(passage_ranking, "_REMEMBERED", 40)
    branch = retrieval_store.branch()
    retrieval_store.append(branch, *(f"{REPLY} {n}" for n in range(9)))
    recall = open_recall()

    first = searched(recall, "ferry to Hvar", branch, limit=9)

    index = recall._library.get(USER)
    assert 0 < index._passage_cache.num_passages <= 40
    assert index._passage_cache.num_passages == sum(
        len(one.ranges) for one in index._passage_cache._known.values()
    )
    assert searched(recall, "ferry to Hvar", branch, limit=9) == first


def test_no_more_than_the_best_messages_are_divided(retrieval_store, open_recall):
    branch = retrieval_store.branch()
    retrieval_store.append(branch, *(f"{REPLY} {n}" for n in range(DIVIDED + 10)))

    found = searched(open_recall(), "ferry to Hvar", branch, limit=999)

    is_whole = [not hit.passages for hit in found]
    assert is_whole == sorted(is_whole)
    assert sum(is_whole) == 10
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)


@pytest.mark.slow
def test_a_message_of_a_million_characters_is_searched_in_seconds(retrieval_store, open_recall):
    branch = retrieval_store.branch()
    retrieval_store.append(branch, FILLER * 7_000 + ANSWER + FILLER * 7_000, "fine")
    recall = open_recall()
    searched(recall, "weather", branch)
    started = time.perf_counter()

    best = searched(recall, "What does the ferry to Hvar cost?", branch)[0]

    assert time.perf_counter() - started < 10
    assert ANSWER.strip() in best.text
