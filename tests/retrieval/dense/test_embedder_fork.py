"""A real model in a process that was forked while it was in use."""

import json

import pytest

from tests.store.processes import finish, start

FORK = """
import json, os, signal, time
import numpy as np
from agentmem.retrieval import SentenceEmbedder
from agentmem.retrieval.dense.embedding_worker import EmbeddingWorker
from tests.retrieval.retrieval_store import ListRetrievalStore

embedder = SentenceEmbedder.load(device="cpu")
before = embedder.embed_query("which hotel is cheap?")
retrieval_store = ListRetrievalStore()
retrieval_store.append(retrieval_store.branch(), *(f"hotel number {n} " * 20 for n in range(200)))
worker = EmbeddingWorker(retrieval_store, embedder)
worker.wake()
while not retrieval_store.vectors:
    time.sleep(0.01)

reader, writer = os.pipe()
child = os.fork()
if child == 0:
    signal.alarm(60)
    after = embedder.embed_query("which hotel is cheap?")
    os.write(writer, json.dumps(float(np.abs(before - after).max())).encode())
    os._exit(0)
os.close(writer)
with os.fdopen(reader) as pipe:
    print(pipe.read())
os.waitpid(child, 0)
worker.close()
"""


@pytest.mark.slow
def test_a_forked_process_embeds_although_the_parent_was_embedding():
    """It has none of the threads that torch shares its work out to, and nobody gives the turn."""
    assert json.loads(finish(start(FORK), timeout=300)) < 1e-5
