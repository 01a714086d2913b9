"""Embedders, archives and workers of the tests."""

from contextlib import contextmanager

import pytest

from agentmem.retrieval import HybridRetriever, RecallSettings
from agentmem.retrieval.dense import embedding_worker as worker_module
from agentmem.retrieval.dense.embedding_worker import EmbeddingWorker
from agentmem.testing import HashingEmbedder
from tests.retrieval.archive import ListArchive
from tests.retrieval.filed import CODE_WORD, FiledArchive, search


@pytest.fixture
def archive():
    return ListArchive()


@pytest.fixture
def open_worker(archive, monkeypatch):
    """Give workers that are impatient, and are closed in the end."""
    monkeypatch.setattr(worker_module, "_RETRY_AFTER_S", (0.001, 0.001))
    monkeypatch.setattr(worker_module, "_REST_S", (0.01, 0.05))
    opened = []

    def make(embedder=None, **options):
        opened.append(EmbeddingWorker(archive, embedder or HashingEmbedder(), **options))
        return opened[-1]

    yield make
    for worker in opened:
        worker.close()


@contextmanager
def opening(archive):
    opened = []

    def make(embedder=None, **options):
        settings = RecallSettings(**options)
        opened.append(HybridRetriever(embedder, settings=settings).over(archive))
        return opened[-1]

    yield make
    for recall in opened:
        recall.close()


@pytest.fixture
def open_recall(archive):
    """Give recalls over the archive, by words alone without an embedder; closed in the end."""
    with opening(archive) as make:
        yield make


@pytest.fixture(params=["words", "hybrid"])
def recall(request, open_recall):
    return open_recall(HashingEmbedder() if request.param == "hybrid" else None)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "agent.db-index"


@pytest.fixture
def filed(folder):
    """An archive whose indexes may be saved, with 20 hotels and a secret."""
    archive = FiledArchive(folder)
    archive.append(archive.branch(), *(f"hotel number {n}" for n in range(20)), CODE_WORD)
    return archive


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
