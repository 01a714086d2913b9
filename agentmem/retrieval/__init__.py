"""
What might matter: messages of earlier turns, found by their words and by their meaning.

Importing this loads nothing else: each name is imported when it is first used, as an embedder
needs torch and words alone do not. The names with their types are in ``__init__.pyi``.
"""

from agentmem.lazy_names import lazy_names
from agentmem.machine import cpu_threads  # noqa: F401 - before anything loads torch

_HOME_OF = {
    "DEFAULT_EMBEDDER": "agentmem.retrieval.embedder",
    "Embedder": "agentmem.retrieval.embedding",
    "HybridRecall": "agentmem.retrieval.hybrid",
    "HybridRetriever": "agentmem.retrieval.hybrid",
    "RecallSettings": "agentmem.retrieval.library",
    "RecallStatus": "agentmem.protocols",
    "SentenceEmbedder": "agentmem.retrieval.embedder",
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
