from agentmem.config import Budget as Budget
from agentmem.config import DatabaseConfig as DatabaseConfig
from agentmem.config import InferenceConfig as InferenceConfig
from agentmem.config import Sampling as Sampling
from agentmem.context import DiscardOldResults as DiscardOldResults
from agentmem.context import ExtractiveSummarizer as ExtractiveSummarizer
from agentmem.context import ModelSummarizer as ModelSummarizer
from agentmem.context import PinTask as PinTask
from agentmem.context import Policy as Policy
from agentmem.context import PromptDiff as PromptDiff
from agentmem.context import diff as diff
from agentmem.errors import AdmissionError as AdmissionError
from agentmem.errors import AgentMemError as AgentMemError
from agentmem.errors import ConfigError as ConfigError
from agentmem.errors import ConflictError as ConflictError
from agentmem.errors import ContextOverflowError as ContextOverflowError
from agentmem.errors import DamagedFileError as DamagedFileError
from agentmem.errors import DamagedIndexError as DamagedIndexError
from agentmem.errors import DamagedRowError as DamagedRowError
from agentmem.errors import DatabaseBusyError as DatabaseBusyError
from agentmem.errors import DatabaseUrlError as DatabaseUrlError
from agentmem.errors import DeadlineError as DeadlineError
from agentmem.errors import IndexFileError as IndexFileError
from agentmem.errors import InferenceError as InferenceError
from agentmem.errors import InvalidInputError as InvalidInputError
from agentmem.errors import InvalidTextError as InvalidTextError
from agentmem.errors import ModelLoadError as ModelLoadError
from agentmem.errors import OutOfBlocksError as OutOfBlocksError
from agentmem.errors import PinNotFoundError as PinNotFoundError
from agentmem.errors import QueueFullError as QueueFullError
from agentmem.errors import ReadOnlyDatabaseError as ReadOnlyDatabaseError
from agentmem.errors import RetrievalError as RetrievalError
from agentmem.errors import RetrieverClosedError as RetrieverClosedError
from agentmem.errors import SchemaVersionError as SchemaVersionError
from agentmem.errors import SessionNotFoundError as SessionNotFoundError
from agentmem.errors import StoreError as StoreError
from agentmem.errors import TranscriptError as TranscriptError
from agentmem.errors import VectorError as VectorError
from agentmem.memory import CompactionState as CompactionState
from agentmem.memory import CompactionStatus as CompactionStatus
from agentmem.memory import Memory as Memory
from agentmem.memory import ReplyOptions as ReplyOptions
from agentmem.memory import ReplyStream as ReplyStream
from agentmem.memory import Session as Session
from agentmem.memory import Subtask as Subtask
from agentmem.protocols import Hit as Hit
from agentmem.types import DisplayForm as DisplayForm
from agentmem.types import FinishReason as FinishReason
from agentmem.types import Health as Health
from agentmem.types import ImagePart as ImagePart
from agentmem.types import Message as Message
from agentmem.types import Origin as Origin
from agentmem.types import Pin as Pin
from agentmem.types import PrefixBreak as PrefixBreak
from agentmem.types import Prompt as Prompt
from agentmem.types import ReasoningPart as ReasoningPart
from agentmem.types import Reply as Reply
from agentmem.types import Reuse as Reuse
from agentmem.types import Role as Role
from agentmem.types import Span as Span
from agentmem.types import StoredMessage as StoredMessage
from agentmem.types import Summary as Summary
from agentmem.types import TextPart as TextPart
from agentmem.types import Tier as Tier
from agentmem.types import ToolCall as ToolCall
from agentmem.types import TruncationReason as TruncationReason
from agentmem.types import TruncationRecord as TruncationRecord
from agentmem.types import Usage as Usage
from agentmem.types import repair_text as repair_text

__all__ = [
    "AdmissionError",
    "AgentMemError",
    "Budget",
    "CompactionState",
    "CompactionStatus",
    "ConfigError",
    "ConflictError",
    "ContextOverflowError",
    "DamagedFileError",
    "DamagedIndexError",
    "DamagedRowError",
    "DatabaseBusyError",
    "DatabaseConfig",
    "DatabaseUrlError",
    "DeadlineError",
    "DiscardOldResults",
    "DisplayForm",
    "ExtractiveSummarizer",
    "FinishReason",
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
    "Origin",
    "OutOfBlocksError",
    "Pin",
    "PinNotFoundError",
    "PinTask",
    "Policy",
    "PrefixBreak",
    "Prompt",
    "PromptDiff",
    "QueueFullError",
    "ReadOnlyDatabaseError",
    "ReasoningPart",
    "Reply",
    "ReplyOptions",
    "ReplyStream",
    "RetrievalError",
    "RetrieverClosedError",
    "Reuse",
    "Role",
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
    "TruncationReason",
    "TruncationRecord",
    "Usage",
    "VectorError",
    "diff",
    "repair_text",
]
