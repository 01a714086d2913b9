"""
Recall: messages of earlier turns, found by words (BM25) and by meaning (embeddings).

Importing this loads nothing else: each name is imported when it is first used, as an embedder
needs torch and words alone do not. The names with their types are in ``__init__.pyi``.
"""

from agentmem.lazy_names import lazy_names
from agentmem.machine import cpu_threads  # noqa: F401 - before anything loads torch

_HOME_OF = {
    "DEFAULT_EMBEDDER": "agentmem.retrieval.dense.sentence_embedder",
    "Embedder": "agentmem.retrieval.dense.embedder",
    "HybridRecall": "agentmem.retrieval.hybrid_retriever",
    "HybridRetriever": "agentmem.retrieval.hybrid_retriever",
    "RecallSettings": "agentmem.retrieval.index.index_cache",
    "RecallStatus": "agentmem.protocols",
    "SentenceEmbedder": "agentmem.retrieval.dense.sentence_embedder",
}

__all__ = [
    "DEFAULT_EMBEDDER",
    "Embedder",
    "HybridRecall",
    "HybridRetriever",
    "RecallSettings",
    "RecallStatus",
    "SentenceEmbedder",
]


__getattr__, __dir__ = lazy_names(globals(), _HOME_OF)
