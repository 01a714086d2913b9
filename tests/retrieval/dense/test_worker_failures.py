import threading
import time

import numpy as np
import pytest

from agentmem.testing import HashingEmbedder
from tests.retrieval.embedders import Watched, embedded


def test_an_embedder_that_fails_is_tried_again_and_its_error_is_shown(retrieval_store, open_worker):
    ids = retrieval_store.append(retrieval_store.branch(), "one", "two", "three")
    is_down = threading.Event()
    is_down.set()
    worker = open_worker(Watched(fails_on=lambda _: is_down.is_set()))

    assert not worker.wait(10)
    assert "cannot embed user: three" in worker.last_error
    assert embedded(retrieval_store) == []

    is_down.clear()
    assert worker.wait(10)
    assert worker.last_error is None
    assert embedded(retrieval_store) == ids


def test_a_failure_is_taken_up_again_without_being_asked(retrieval_store, open_worker):
    ids = retrieval_store.append(retrieval_store.branch(), "one")
    fails = iter([True] * 9 + [False] * 100)
    worker = open_worker(Watched(fails_on=lambda _: next(fails)))

    worker.wake()

    deadline = time.monotonic() + 10
    while embedded(retrieval_store) != ids and time.monotonic() < deadline:
        time.sleep(0.01)
    assert embedded(retrieval_store) == ids


def test_one_message_that_cannot_be_embedded_holds_up_no_other(retrieval_store, open_worker):
    ids = retrieval_store.append(retrieval_store.branch(), *(f"number {n}" for n in range(100)))
    embedder = Watched(fails_on=lambda text: text == "user: number 50")
    worker = open_worker(embedder)

    assert not worker.wait(10)

    assert embedded(retrieval_store) == [i for i in ids if i != ids[50]]
    assert worker.set_aside == {ids[50]}
    assert "number 50" in worker.last_error
    more = retrieval_store.append(1, "later")
    num_tries = embedder.texts.count("user: number 50")
    assert not worker.wait(10)
    assert embedded(retrieval_store)[-1:] == more
    assert embedder.texts.count("user: number 50") == num_tries


@pytest.mark.parametrize("wrong", [np.nan, 0.0, np.inf])
def test_what_is_no_vector_is_not_stored(retrieval_store, open_worker, wrong):
    class Broken(HashingEmbedder):
        def embed_passages(self, texts):
            vectors = super().embed_passages(texts)
            vectors[["bad" in text for text in texts]] = wrong
            return vectors

    ids = retrieval_store.append(retrieval_store.branch(), "good", "bad", "fine")
    worker = open_worker(Broken())

    assert not worker.wait(10)

    assert embedded(retrieval_store) == [ids[0], ids[2]]
    assert worker.set_aside == {ids[1]}


def test_an_archive_that_fails_is_tried_again(retrieval_store, open_worker, monkeypatch):
    ids = retrieval_store.append(retrieval_store.branch(), "one", "two")
    failures = iter([OSError("the disk is full")] * 5)
    add = retrieval_store.add_embeddings

    def sometimes(fingerprint, embeddings):
        if (error := next(failures, None)) is not None:
            raise error
        add(fingerprint, embeddings)

    monkeypatch.setattr(retrieval_store, "add_embeddings", sometimes)
    worker = open_worker()

    assert not worker.wait(10)
    assert "the disk is full" in worker.last_error
    assert worker.wait(10)
    assert embedded(retrieval_store) == ids


class CutsToNothing(HashingEmbedder):
    def split(self, text):  # noqa: ARG002 - the contract
        return []


class GivesTooFew(HashingEmbedder):
    def embed_passages(self, texts):
        return super().embed_passages(texts)[:-1]


@pytest.mark.parametrize(
    ("embedder", "reason"),
    [(CutsToNothing(), "into no chunks"), (GivesTooFew(), "0 vectors for 1 texts")],
)
def test_what_an_embedder_does_wrong_is_told_in_words(
    retrieval_store, open_worker, embedder, reason
):
    retrieval_store.append(retrieval_store.branch(), "one")
    worker = open_worker(embedder)

    worker.wake()

    assert not worker.wait(10)
    assert reason in worker.last_error
    assert retrieval_store.vectors == {}
