from .dense.embedder import Embedder
from .dense.sentence_embedder import DEFAULT_EMBEDDER, SentenceEmbedder
from .hybrid_retriever import HybridRetriever, HybridSearchIndex
from .index.index_cache import RecallSettings

__all__ = [
    "DEFAULT_EMBEDDER",
    "Embedder",
    "HybridRetriever",
    "HybridSearchIndex",
    "RecallSettings",
    "SentenceEmbedder",
]
