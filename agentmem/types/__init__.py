"""
The nouns, as frozen values.

Text is checked when a value is built, so that whatever holds one of these can be stored in
every database and shown to every tokenizer.
"""

from agentmem.types.generation import (
    FinishReason,
    Generation,
    Reply,
    Usage,
)
from agentmem.types.messages import (
    BranchId,
    GeneratedIds,
    ImagePart,
    Inherit,
    Message,
    MessageId,
    Origin,
    Part,
    Pin,
    PinScope,
    ReasoningPart,
    Role,
    SessionId,
    StoredMessage,
    TextPart,
    ToolCall,
    Turn,
)
from agentmem.types.prompt import (
    AssemblyId,
    Prompt,
    Rule,
    Span,
    Tier,
    TruncationRecord,
    freeze,
)
from agentmem.types.text import (
    check_text,
    repair_text,
)

__all__ = [
    "AssemblyId",
    "BranchId",
    "FinishReason",
    "GeneratedIds",
    "Generation",
    "ImagePart",
    "Inherit",
    "Message",
    "MessageId",
    "Origin",
    "Part",
    "Pin",
    "PinScope",
    "Prompt",
    "ReasoningPart",
    "Reply",
    "Role",
    "Rule",
    "SessionId",
    "Span",
    "StoredMessage",
    "TextPart",
    "Tier",
    "ToolCall",
    "TruncationRecord",
    "Turn",
    "Usage",
    "check_text",
    "freeze",
    "repair_text",
]
