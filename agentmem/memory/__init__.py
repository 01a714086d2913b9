"""The facade: what a user of the SDK holds in the hand."""

from agentmem.memory.conversation import Conversation
from agentmem.memory.facade import Memory
from agentmem.memory.history import Audit, History
from agentmem.memory.replying import ReplyStream
from agentmem.memory.session import Session, Subtask

__all__ = ["Audit", "Conversation", "History", "Memory", "ReplyStream", "Session", "Subtask"]
