"""Embedders, archives and workers of the tests."""

import pytest

from agentmem.retrieval import worker as worker_module
from agentmem.retrieval.worker import Worker
from agentmem.testing import HashingEmbedder
from tests.retrieval.archive import ListArchive


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
        opened.append(Worker(archive, embedder or HashingEmbedder(), **options))
        return opened[-1]

    yield make
    for worker in opened:
        worker.close()
