"""The public facade of the SDK: memories, sessions, subtasks."""

from agentmem.memory.aio import AsyncReplyStream
from agentmem.memory.background_jobs import CompactionState, CompactionStatus
from agentmem.memory.conversation import Conversation
from agentmem.memory.history import Audit, History
from agentmem.memory.memory import Memory
from agentmem.memory.reply_options import ReplyOptions
from agentmem.memory.reply_stream import ReplyStream
from agentmem.memory.session import Session, Subtask
from agentmem.memory.session_lines import Line
from agentmem.memory.snapshot import Snapshot

__all__ = [
    "AsyncReplyStream",
    "Audit",
    "CompactionState",
    "CompactionStatus",
    "Conversation",
    "History",
    "Line",
    "Memory",
    "ReplyOptions",
    "ReplyStream",
    "Session",
    "Snapshot",
    "Subtask",
]
