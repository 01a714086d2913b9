"""
A conversation memory for agents that knows exactly what the model sees.

Importing this loads nothing else: each public name is imported when it is first used, since
SQLAlchemy alone takes longer than many programs that only read a setting. The names with their
types are in ``__init__.pyi``. The local model is in `agentmem.inference`, stand-ins for tests in
`agentmem.testing`.
"""

import importlib
from typing import Any

_HOMES = {
    "agentmem.config": (
        "Budget",
        "InferenceConfig",
        "Sampling",
    ),
    "agentmem.context": (
        "DiscardOldResults",
        "ExtractiveSummarizer",
        "ModelSummarizer",
        "PinTask",
        "Policy",
        "PromptDiff",
        "diff",
    ),
    "agentmem.errors": (
        "AdmissionError",
        "AgentMemError",
        "ConfigError",
        "ConflictError",
        "ContextOverflowError",
        "DamagedFileError",
        "DamagedIndexError",
        "DatabaseBusyError",
        "DatabaseUrlError",
        "DeadlineError",
        "InferenceError",
        "IndexFileError",
        "InvalidInputError",
        "InvalidTextError",
        "ModelLoadError",
        "OutOfBlocksError",
        "PinNotFoundError",
        "QueueFullError",
        "RetrievalError",
        "RetrieverClosedError",
        "SchemaVersionError",
        "SessionNotFoundError",
        "StoreError",
        "TranscriptError",
        "VectorError",
    ),
    "agentmem.memory": (
        "FoldState",
        "FoldStatus",
        "Memory",
        "ReplyStream",
        "Session",
        "Subtask",
    ),
    "agentmem.protocols": ("Hit",),
    "agentmem.types": (
        "Break",
        "FinishReason",
        "Form",
        "ImagePart",
        "Message",
        "Pin",
        "Prompt",
        "ReasoningPart",
        "Reply",
        "Reuse",
        "Role",
        "Rule",
        "Span",
        "StoredMessage",
        "Summary",
        "TextPart",
        "Tier",
        "ToolCall",
        "TruncationRecord",
        "Usage",
        "repair_text",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AdmissionError",
    "AgentMemError",
    "Break",
    "Budget",
    "ConfigError",
    "ConflictError",
    "ContextOverflowError",
    "DamagedFileError",
    "DamagedIndexError",
    "DatabaseBusyError",
    "DatabaseUrlError",
    "DeadlineError",
    "DiscardOldResults",
    "ExtractiveSummarizer",
    "FinishReason",
    "FoldState",
    "FoldStatus",
    "Form",
    "Hit",
    "ImagePart",
    "IndexFileError",
    "InferenceConfig",
    "InferenceError",
    "InvalidInputError",
    "InvalidTextError",
    "Memory",
    "Message",
    "ModelLoadError",
    "ModelSummarizer",
    "OutOfBlocksError",
    "Pin",
    "PinNotFoundError",
    "PinTask",
    "Policy",
    "Prompt",
    "PromptDiff",
    "QueueFullError",
    "ReasoningPart",
    "Reply",
    "ReplyStream",
    "RetrievalError",
    "RetrieverClosedError",
    "Reuse",
    "Role",
    "Rule",
    "Sampling",
    "SchemaVersionError",
    "Session",
    "SessionNotFoundError",
    "Span",
    "StoreError",
    "StoredMessage",
    "Subtask",
    "Summary",
    "TextPart",
    "Tier",
    "ToolCall",
    "TranscriptError",
    "TruncationRecord",
    "Usage",
    "VectorError",
    "diff",
    "repair_text",
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
