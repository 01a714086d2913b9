"""
What might matter: messages of earlier turns, found by their words and by their meaning.

Importing this loads nothing else: each name is imported when it is first used, as an embedder
needs torch and words alone do not. The names with their types are in ``__init__.pyi``.
"""

import importlib
from typing import Any

from agentmem.retrieval import _cpu_threads  # noqa: F401 - before anything loads torch

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


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
