"""What one layer needs of another. Implementations do not import each other, only this."""

from agentmem.protocols.models import (
    Chunk,
    GenerationRequest,
    LanguageModel,
    RenderedChat,
    TokenCounter,
)
from agentmem.protocols.policies import (
    AutoPin,
    Discardable,
    Passage,
    Summarizer,
)
from agentmem.protocols.recall import (
    INDEX_LOCK,
    INDEX_PART,
    INDEX_SUFFIX,
    Archive,
    Domain,
    Embedding,
    Extent,
    Hit,
    OnRecallProgress,
    Query,
    Recall,
    RecallStatus,
    Retriever,
    VectorTable,
)

__all__ = [
    "INDEX_LOCK",
    "INDEX_PART",
    "INDEX_SUFFIX",
    "Archive",
    "AutoPin",
    "Chunk",
    "Discardable",
    "Domain",
    "Embedding",
    "Extent",
    "GenerationRequest",
    "Hit",
    "LanguageModel",
    "OnRecallProgress",
    "Passage",
    "Query",
    "Recall",
    "RecallStatus",
    "RenderedChat",
    "Retriever",
    "Summarizer",
    "TokenCounter",
    "VectorTable",
]
