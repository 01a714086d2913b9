from agentmem.protocols import RecallStatus as RecallStatus
from agentmem.retrieval.dense.embedder import Embedder as Embedder
from agentmem.retrieval.dense.sentence_embedder import DEFAULT_EMBEDDER as DEFAULT_EMBEDDER
from agentmem.retrieval.dense.sentence_embedder import SentenceEmbedder as SentenceEmbedder
from agentmem.retrieval.hybrid_retriever import HybridRecall as HybridRecall
from agentmem.retrieval.hybrid_retriever import HybridRetriever as HybridRetriever
from agentmem.retrieval.index.index_cache import RecallSettings as RecallSettings

__all__ = [
    "DEFAULT_EMBEDDER",
    "Embedder",
    "HybridRecall",
    "HybridRetriever",
    "RecallSettings",
    "RecallStatus",
    "SentenceEmbedder",
]
