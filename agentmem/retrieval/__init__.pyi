from agentmem.protocols import RecallStatus as RecallStatus
from agentmem.retrieval.embedder import DEFAULT_EMBEDDER as DEFAULT_EMBEDDER
from agentmem.retrieval.embedder import SentenceEmbedder as SentenceEmbedder
from agentmem.retrieval.embedding import Embedder as Embedder
from agentmem.retrieval.hybrid import HybridRecall as HybridRecall
from agentmem.retrieval.hybrid import HybridRetriever as HybridRetriever
from agentmem.retrieval.library import RecallSettings as RecallSettings

__all__ = [
    "DEFAULT_EMBEDDER",
    "Embedder",
    "HybridRecall",
    "HybridRetriever",
    "RecallSettings",
    "RecallStatus",
    "SentenceEmbedder",
]
