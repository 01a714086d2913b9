"""Embedders, retrieval stores and workers of the tests."""

from contextlib import contextmanager

import pytest

from agentmem.retrieval import HybridRetriever, RecallSettings
from agentmem.retrieval.dense import embedding_worker as worker_module
from agentmem.retrieval.dense.embedding_worker import EmbeddingWorker
from agentmem.testing import HashingEmbedder
from tests.retrieval.filed import CODE_WORD, FiledRetrievalStore, search
from tests.retrieval.retrieval_store import ListRetrievalStore


@pytest.fixture
def retrieval_store():
    return ListRetrievalStore()


@pytest.fixture
def open_worker(retrieval_store, monkeypatch):
    """Give workers that are impatient, and are closed in the end."""
    monkeypatch.setattr(worker_module, "_RETRY_AFTER_S", (0.001, 0.001))
    monkeypatch.setattr(worker_module, "_REST_S", (0.01, 0.05))
    opened = []

    def make(embedder=None, **options):
        opened.append(EmbeddingWorker(retrieval_store, embedder or HashingEmbedder(), **options))
        return opened[-1]

    yield make
    for worker in opened:
        worker.close()


@contextmanager
def opening(retrieval_store):
    opened = []

    def make(embedder=None, **options):
        settings = RecallSettings(**options)
        opened.append(HybridRetriever(embedder, settings=settings).open_index(retrieval_store))
        return opened[-1]

    yield make
    for recall in opened:
        recall.close()


@pytest.fixture
def open_recall(retrieval_store):
    """Search indexes over the store, by words alone without an embedder; closed in the end."""
    with opening(retrieval_store) as make:
        yield make


@pytest.fixture(params=["words", "hybrid"])
def recall(request, open_recall):
    return open_recall(HashingEmbedder() if request.param == "hybrid" else None)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "agent.db-index"


@pytest.fixture
def filed(folder):
    """A retrieval store whose indexes may be saved, with 20 hotels and a secret."""
    retrieval_store = FiledRetrievalStore(folder)
    retrieval_store.append(
        retrieval_store.branch(), *(f"hotel number {n}" for n in range(20)), CODE_WORD
    )
    return retrieval_store


@pytest.fixture
def open_filed(filed):
    with opening(filed) as make:
        yield lambda embedder=None, **options: make(embedder or HashingEmbedder(), **options)


@pytest.fixture
def saved(open_filed, filed, folder):
    """The file of a recall that was closed."""
    recall = open_filed()
    assert recall.wait(10)
    assert search(recall)
    recall.close()
    filed.num_read = 0
    (path,) = folder.glob("*.vectors")
    return path
