"""Choices that a user can make or replace: what may be discarded, and who writes summaries."""

from dataclasses import dataclass, field

from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.protocols import Discardable, Summarizer
from agentmem.types import Role, StoredMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardOldResults:
    """Let tool results give way that are older than *turns* turns."""

    turns: int = 2

    def discards(self, stored: StoredMessage, *, age: int) -> bool:
        return stored.message.role is Role.TOOL and age > self.turns


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """
    How a conversation is cut down to its budget.

    Args:
        summarizer: writes what stands for messages that left the window; None for no summaries.
        discardable: what gives way first; None for nothing before its turn.
    """

    summarizer: Summarizer | None = field(default_factory=ExtractiveSummarizer)
    discardable: Discardable | None = None
