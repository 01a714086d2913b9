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
    Archive,
    Domain,
    Embedding,
    Extent,
    Hit,
    Query,
    Recall,
    Retriever,
)

__all__ = [
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
    "Passage",
    "Query",
    "Recall",
    "RenderedChat",
    "Retriever",
    "Summarizer",
    "TokenCounter",
]
