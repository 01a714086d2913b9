"""What is found and what is told, over a retrieval store in plain Python."""

import os
from dataclasses import replace

import pytest

from agentmem.errors import ConfigError, RetrieverClosedError
from agentmem.protocols import Retriever, SearchIndex
from agentmem.retrieval import HybridRetriever, RecallSettings
from agentmem.retrieval.dense import message_vectors
from agentmem.testing import HashingEmbedder
from tests.builders import call
from tests.retrieval.asking import ask, found
from tests.retrieval.embedders import Watched, embedded
from tests.retrieval.retrieval_store import SCOPE, USER


def test_it_is_what_the_protocols_ask_for(open_recall):
    retriever: Retriever = HybridRetriever()
    recall: SearchIndex = open_recall()

    assert retriever
    assert recall.wait()


def test_what_was_said_is_found_at_once(retrieval_store, recall):
    branch = retrieval_store.branch()
    see_all = {branch: (1, 99)}
    retrieval_store.append(branch, "my bicycle is red", "the weather is fine")
    (hotel,) = retrieval_store.append(branch, "the hotel in Lisbon costs 92 euros")
    assert found(recall, "hotel Lisbon", visible=see_all)[0] == hotel

    (later,) = retrieval_store.append(branch, "the museum opens at nine")
    assert found(recall, "when does the museum open", visible=see_all)[0] == later


def test_hits_tell_score_ranks_and_place(retrieval_store, open_recall):
    here, there = retrieval_store.branch(1), retrieval_store.branch(2)
    retrieval_store.append(here, "the hotel in Lisbon", "something else")
    retrieval_store.append(there, "a hotel in Porto", "and more")
    recall = open_recall(HashingEmbedder())
    assert recall.wait(10)

    hits = recall.search(ask("hotel Lisbon", visible={here: (1, 9)}))

    assert [hit.stored.message.text for hit in hits[:2]] == [
        "the hotel in Lisbon",
        "a hotel in Porto",
    ]
    assert [hit.is_local for hit in hits[:2]] == [True, False]
    assert hits[0].ranks == {"lexical": 1, "dense": 1}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_no_more_is_found_than_was_wanted(retrieval_store, recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, *(f"hotel number {n}" for n in range(6)))

    assert len(found(recall, "hotel", visible={main: (1, 9)}, limit=3)) == 3
    assert found(recall, "hotel", visible={main: (1, 9)}, limit=0) == []
    assert found(recall, " \n", visible={main: (1, 9)}) == []


def test_the_archive_may_be_empty(recall):
    assert found(recall, "hotel") == []


def test_equal_scores_are_in_the_order_of_the_messages(retrieval_store, open_recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, *(["the hotel"] * 20))
    recall = open_recall(HashingEmbedder())
    assert recall.wait(10)
    first = found(recall, "hotel", visible={main: (1, 99)}, limit=20)

    again = found(open_recall(HashingEmbedder()), "hotel", visible={main: (1, 99)}, limit=20)

    assert first == again


def test_an_error_of_the_embedder_leaves_the_words(retrieval_store, open_recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, "the hotel in Lisbon", "the museum")
    embedder = Watched(fails_on=lambda text: "hotel?" in text)
    recall = open_recall(embedder)
    assert recall.wait(10)

    hits = recall.search(ask("which hotel?", visible={main: (1, 9)}))

    assert hits[0].stored.id == 1
    assert "dense" not in hits[0].ranks
    assert "cannot embed which hotel?" in recall.status(USER).dense_unavailable_reason
    assert "dense" in recall.search(ask("the hotel", visible={main: (1, 9)}))[0].ranks
    assert recall.status(USER).dense_unavailable_reason is None


@pytest.mark.parametrize("name", ["max_bytes", "save_after"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "9", None])
def test_impossible_settings_are_refused(name, value):
    with pytest.raises(ConfigError, match=name):
        RecallSettings(**{name: value})


class GivesLists(HashingEmbedder):
    def embed_query(self, text):
        return super().embed_query(text).tolist()


def test_the_vector_of_a_question_may_be_a_list(retrieval_store, open_recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, "the hotel in Lisbon", "the museum")
    recall = open_recall(GivesLists())
    assert recall.wait(10)

    assert "dense" in recall.search(ask("hotel", visible={main: (1, 9)}))[0].ranks


def test_status_tells_how_far_it_is(retrieval_store, open_recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, "one hotel", "two hotels", call("c1"))
    by_words = open_recall().status(USER)
    recall = open_recall(HashingEmbedder())
    before = recall.status(USER)
    assert recall.wait(10)

    after = recall.status(USER)

    assert (by_words.num_messages, by_words.num_pending) == (2, 0)
    assert by_words.dense_unavailable_reason == "no embedder is configured"
    assert (before.num_embedded, before.num_pending) == (0, 2)
    assert before.dense_unavailable_reason == "none of 2 messages is embedded yet"
    assert (after.num_embedded, after.num_pending, after.dense_unavailable_reason) == (2, 0, None)
    assert after == replace(after, kind="flat", last_error=None, file_bytes=None, generation=None)


def test_another_embedder_finds_by_words_until_it_has_embedded(retrieval_store, open_recall):
    main = retrieval_store.branch()
    see_all = {main: (1, 9)}
    retrieval_store.append(main, "the hotel in Lisbon", "the museum")
    assert open_recall(HashingEmbedder()).wait(10)
    other = HashingEmbedder(name="other")
    recall = open_recall(other)

    hits = recall.search(ask("hotel", visible=see_all))
    assert hits[0].stored.id == 1
    assert "dense" not in hits[0].ranks

    assert recall.wait(10)
    assert "dense" in recall.search(ask("hotel", visible=see_all))[0].ranks
    assert embedded(retrieval_store, other.fingerprint) == [1, 2]


def test_a_search_has_what_lacks_a_vector_embedded(retrieval_store, open_recall):
    """Another process, without an embedder, stored it."""
    main = retrieval_store.branch()
    recall = open_recall(HashingEmbedder())
    retrieval_store.append(main, "the hotel")

    found(recall, "hotel", visible={main: (1, 9)})

    with recall._worker._changed:
        recall._worker._changed.wait_for(lambda: embedded(retrieval_store) == [1], 10)
    assert embedded(retrieval_store) == [1]


def test_a_closed_one_refuses_to_search(retrieval_store, recall):
    retrieval_store.append(retrieval_store.branch(), "the hotel")
    recall.close()
    recall.close()

    recall.added()
    recall.forget(SCOPE, [1])
    for asking in (lambda: recall.search(ask("hotel")), lambda: recall.status(USER)):
        with pytest.raises(RetrieverClosedError):
            asking()


def test_rebuilding_embeds_what_is_pending_and_tells_how_far_it_is(retrieval_store, open_recall):
    main = retrieval_store.branch()
    retrieval_store.append(main, *(f"hotel {n}" for n in range(70)))
    recall = open_recall(HashingEmbedder())
    told = []

    status = recall.rebuild(USER, lambda *step: told.append(step))

    assert (status.num_messages, status.num_embedded, status.num_pending) == (70, 70, 0)
    assert told == [
        ("read", 70, 70),
        ("embedded", 32, 70),
        ("embedded", 64, 70),
        ("embedded", 70, 70),
    ]


def test_rebuilding_by_words_alone_reads_everything(retrieval_store, open_recall):
    retrieval_store.append(retrieval_store.branch(), "hotel")

    assert open_recall().rebuild(USER).num_messages == 1


@pytest.mark.slow
def test_a_forked_process_goes_on_with_an_index_of_its_own(retrieval_store, open_recall):
    """Even if the fork finds the index in use by another thread."""
    main = retrieval_store.branch()
    retrieval_store.append(main, "the hotel")
    recall = open_recall(HashingEmbedder())
    assert recall.wait(10)
    assert found(recall, "hotel", visible={main: (1, 9)}) == [1]

    with recall._library.get(USER).lock:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                retrieval_store.append(main, "the museum")
                is_found = found(recall, "museum", visible={main: (1, 9)})[0] == 2
                status = 0 if is_found and recall.wait(10) else 2
                recall.close()
            finally:
                os._exit(status)
        _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert found(recall, "hotel", visible={main: (1, 9)}) == [1]


@pytest.mark.parametrize("how", ["wait", "rebuild"])
def test_of_many_that_were_missing_all_are_there_once_they_are_embedded(
    retrieval_store, open_recall, monkeypatch, how
):
    """While a long queue is worked off, not each search asks for all that is still missing."""
    monkeypatch.setattr(message_vectors, "_FEW", 5)
    monkeypatch.setattr(message_vectors, "_REST", 10**9)
    retrieval_store.append(retrieval_store.branch(), *(f"hotel {n}" for n in range(70)))
    recall = open_recall(HashingEmbedder())
    assert recall.status(USER).num_pending == 70

    assert recall.wait(10) if how == "wait" else recall.rebuild(USER)

    assert recall.status(USER).num_pending == 0
