import os
import threading
import time

import pytest

from agentmem.protocols import Embedding
from agentmem.retrieval.dense import embedding_worker as worker_module
from agentmem.testing import HashingEmbedder
from agentmem.types import Origin
from tests.builders import call, result, say
from tests.retrieval.embedders import FINGERPRINT, Watched, embedded
from tests.store.processes import finish, start


def test_what_is_stored_is_embedded(retrieval_store, open_worker):
    ids = retrieval_store.append(retrieval_store.branch(), "a hotel", "a bicycle")

    assert open_worker().wait(10)

    assert embedded(retrieval_store) == ids
    (one,) = retrieval_store.vectors[FINGERPRINT, ids[0]]
    expected = HashingEmbedder().embed_query("user: a hotel").tobytes()
    assert one == Embedding(message_id=ids[0], first=0, last=6, vector=expected)


def test_a_long_message_has_a_vector_for_each_span(retrieval_store, open_worker):
    (long,) = retrieval_store.append(retrieval_store.branch(), "word " * 100)
    embedder = HashingEmbedder(max_chars=100)

    assert open_worker(embedder).wait(10)

    spans = retrieval_store.vectors[embedder.fingerprint, long]
    assert [(one.first, one.last) for one in spans] == embedder.split("word " * 100)


def test_where_there_is_nothing_to_embed_an_empty_vector_says_so(retrieval_store, open_worker):
    branch = retrieval_store.branch()
    ids = retrieval_store.append(branch, call("c1"), result("c1", "  "))
    ids += retrieval_store.append(branch, say("user", "made up"), origin=Origin.SYNTHETIC)

    assert open_worker().wait(10)

    assert [one.vector for i in ids for one in retrieval_store.vectors[FINGERPRINT, i]] == [
        b"",
        b"",
        b"",
    ]
    assert retrieval_store.not_embedded(FINGERPRINT, after=0, limit=9) == []


def test_no_thread_is_started_before_there_is_something_to_do(open_worker):
    before = threading.active_count()

    worker = open_worker()
    assert threading.active_count() == before
    worker.wake()
    assert threading.active_count() == before + 1
    worker.close()
    assert threading.active_count() == before


def test_what_is_said_now_does_not_wait_for_a_long_queue(retrieval_store, open_worker):
    """After a change of the embedder everything is in the queue."""
    branch = retrieval_store.branch()
    queue = retrieval_store.append(branch, *(f"old {number}" for number in range(500)))
    said = []

    class Interrupted(Watched):
        def embed_passages(self, texts):
            if len(self.texts) > 100 and not said:
                said.extend(retrieval_store.append(branch, "new"))
                worker.wake()
            return super().embed_passages(texts)

    embedder = Interrupted()
    worker = open_worker(embedder)

    assert worker.wait(30)

    assert embedder.texts.index("user: new") < 200
    assert embedded(retrieval_store) == [*queue, *said]
    assert retrieval_store.num_embedded_twice == 0


def test_a_long_queue_is_worked_off_without_anybody_waiting(retrieval_store, open_worker):
    ids = retrieval_store.append(retrieval_store.branch(), *map(str, range(200)))
    worker = open_worker()

    worker.wake()

    with worker._changed:
        assert worker._changed.wait_for(lambda: worker._tried == worker._asked, 10)
    assert embedded(retrieval_store) == ids


def test_what_was_committed_with_an_older_id_is_found_too(
    retrieval_store, open_worker, monkeypatch
):
    """On PostgreSQL the message with the smaller id may be committed after the one behind it."""
    branch = retrieval_store.branch()
    ids = retrieval_store.append(branch, "first", "second", "third")
    worker = open_worker()
    assert worker.wait(10)

    for look_again in (lambda: worker.wait(10), lambda: often_enough(worker, monkeypatch)):
        assert retrieval_store.vectors.pop((FINGERPRINT, ids[1]))
        look_again()
        assert embedded(retrieval_store) == ids


def often_enough(worker, monkeypatch):
    """Everything is looked through once in a while."""
    monkeypatch.setattr(worker_module, "_SWEEP_EVERY_S", 0.0)
    worker.wake()
    with worker._changed:
        assert worker._changed.wait_for(lambda: worker._tried == worker._asked, 10)


def test_another_embedder_embeds_everything_anew(retrieval_store, open_worker):
    ids = retrieval_store.append(retrieval_store.branch(), "one", "two")
    assert open_worker().wait(10)
    other = HashingEmbedder(name="other")

    assert open_worker(other).wait(10)

    assert embedded(retrieval_store) == embedded(retrieval_store, other.fingerprint) == ids


def test_waiting_ends_with_its_time(retrieval_store, open_worker):
    class Slow(HashingEmbedder):
        def embed_passages(self, texts):
            time.sleep(0.2)
            return super().embed_passages(texts)

    retrieval_store.append(retrieval_store.branch(), *map(str, range(200)))
    worker = open_worker(Slow())

    started = time.monotonic()
    assert not worker.wait(0.05)
    assert time.monotonic() - started < 1
    worker.close()
    assert time.monotonic() - started < 2
    assert 0 < len(embedded(retrieval_store)) < 200


def test_a_closed_worker_neither_starts_nor_waits(open_worker):
    worker = open_worker()
    worker.close()
    worker.close()

    worker.wake()
    worker.wake_if_idle()

    assert not worker.wait()


def test_whoever_waits_is_told_of_a_close(retrieval_store, open_worker):
    entered, leave = threading.Event(), threading.Event()

    class Held(HashingEmbedder):
        def embed_passages(self, texts):
            entered.set()
            leave.wait(10)
            return super().embed_passages(texts)

    retrieval_store.append(retrieval_store.branch(), "one")
    worker = open_worker(Held())
    told = []
    waiting = threading.Thread(target=lambda: told.append(worker.wait()))
    waiting.start()
    entered.wait(10)
    closing = threading.Thread(target=worker.close)
    closing.start()
    waiting.join(10)
    leave.set()
    closing.join(10)

    assert told == [False]


def test_chores_are_done_between_pages_and_at_the_end(retrieval_store, open_worker):
    retrieval_store.append(retrieval_store.branch(), *map(str, range(100)))
    seen = []
    worker = open_worker(chores=lambda: seen.append(len(retrieval_store.vectors)))

    assert worker.wait(10)

    assert seen == [32, 64, 96, 100, 100]


@pytest.mark.slow
def test_a_forked_process_embeds_in_a_thread_of_its_own(retrieval_store, open_worker):
    branch = retrieval_store.branch()
    retrieval_store.append(branch, "before")
    worker = open_worker()
    assert worker.wait(10)

    child = os.fork()
    if child == 0:
        status = 1
        try:
            retrieval_store.append(branch, "after")
            status = 0 if worker.wait(10) and len(retrieval_store.vectors) == 2 else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert worker.wait(10)


LEAVE = """
import time
from agentmem.retrieval.dense.embedding_worker import EmbeddingWorker
from agentmem.testing import HashingEmbedder
from tests.retrieval.retrieval_store import ListRetrievalStore

class Slow(HashingEmbedder):
    def embed_passages(self, texts):
        time.sleep(0.05)
        return super().embed_passages(texts)

retrieval_store = ListRetrievalStore()
retrieval_store.append(retrieval_store.branch(), *map(str, range(100000)))
EmbeddingWorker(retrieval_store, Slow()).wake()
time.sleep(0.2)
print("left", flush=True)
"""


@pytest.mark.slow
def test_a_program_ends_although_it_never_closed():
    started = time.monotonic()

    assert finish(start(LEAVE)) == "left\n"
    assert time.monotonic() - started < 20


def test_what_was_said_after_all_the_rest_is_looked_for_there_alone(
    retrieval_store, open_worker, monkeypatch
):
    """To look through everything for each message would take as long as the history is."""
    branch = retrieval_store.branch()
    retrieval_store.append(branch, *map(str, range(100)))
    worker = open_worker()
    assert worker.wait(10)
    asked = []
    look = retrieval_store.not_embedded

    def watch(fingerprint, *, after, limit):
        asked.append(after)
        return look(fingerprint, after=after, limit=limit)

    monkeypatch.setattr(retrieval_store, "not_embedded", watch)
    (new,) = retrieval_store.append(branch, "new")
    worker.wake()

    with worker._changed:
        worker._changed.wait_for(lambda: worker._tried == worker._asked, 10)
    assert asked == [100, new]
