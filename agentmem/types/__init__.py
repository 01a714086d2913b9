"""
The domain types, as frozen values.

Text is validated on construction, so that every database can store a value and every tokenizer
can read it.
"""

from agentmem.types.generation import (
    FinishReason,
    Generation,
    Reply,
    TokenLogprob,
    Usage,
)
from agentmem.types.health import (
    CompactionHealth,
    DatabaseHealth,
    Health,
    IndexHealth,
    ModelHealth,
)
from agentmem.types.integrity import Discrepancy
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
    AssemblyInfo,
    DisplayForm,
    PrefixBreak,
    Prompt,
    Reuse,
    Span,
    Summary,
    Tier,
    TruncationReason,
    TruncationRecord,
    common_prefix,
    freeze,
)
from agentmem.types.reasoning import names_reasoning, open_reasoning, split_reasoning
from agentmem.types.recalled import RecalledHit
from agentmem.types.replacements import Replacement, ReplacementAuthor
from agentmem.types.sessions import (
    MAX_NAME_CHARS,
    BranchInfo,
    BranchState,
    Scope,
    SessionInfo,
    check_name,
)
from agentmem.types.text import (
    check_text,
    repair_escapes,
    repair_text,
)

__all__ = [
    "MAX_NAME_CHARS",
    "AssemblyId",
    "AssemblyInfo",
    "BranchId",
    "BranchInfo",
    "BranchState",
    "CompactionHealth",
    "DatabaseHealth",
    "Discrepancy",
    "DisplayForm",
    "FinishReason",
    "GeneratedIds",
    "Generation",
    "Health",
    "ImagePart",
    "IndexHealth",
    "Inherit",
    "Message",
    "MessageId",
    "ModelHealth",
    "Origin",
    "Part",
    "Pin",
    "PinScope",
    "PrefixBreak",
    "Prompt",
    "ReasoningPart",
    "RecalledHit",
    "Replacement",
    "ReplacementAuthor",
    "Reply",
    "Reuse",
    "Role",
    "Scope",
    "SessionId",
    "SessionInfo",
    "Span",
    "StoredMessage",
    "Summary",
    "TextPart",
    "Tier",
    "TokenLogprob",
    "ToolCall",
    "TruncationReason",
    "TruncationRecord",
    "Turn",
    "Usage",
    "check_name",
    "check_text",
    "common_prefix",
    "freeze",
    "names_reasoning",
    "open_reasoning",
    "repair_escapes",
    "repair_text",
    "split_reasoning",
]
