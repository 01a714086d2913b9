"""Short ways to write messages, turns and pins in tests."""

from datetime import UTC, datetime
from itertools import count

from agentmem.context import group_turns
from agentmem.types import (
    BranchId,
    Message,
    MessageId,
    Origin,
    Pin,
    PinScope,
    Role,
    StoredMessage,
    TextPart,
    ToolCall,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def say(role, text="", **fields):
    parts = (TextPart(text=text),) if text else ()
    return Message(role=Role(role), parts=parts, **fields)


def call(*ids):
    return say("assistant", tool_calls=tuple(ToolCall(id=i, name="look") for i in ids))


def result(call_id, text="found"):
    return say("tool", text, tool_call_id=call_id)


def stored(*messages, start=1):
    numbers = count(start)
    return tuple(
        StoredMessage(
            id=MessageId(position),
            branch_id=BranchId(1),
            position=position,
            message=message,
            origin=Origin.SAID,
            created_at=NOON,
        )
        for message, position in zip(messages, numbers, strict=False)
    )


def words(number, word="w"):
    return " ".join([word] * number)


def turns(*sizes):
    """Turns of one user message each; a size is what the `WordCounter` counts."""
    return group_turns(stored(*(say("user", words(size - 2)) for size in sizes)))


def pin(key, text):
    return Pin(
        key=key, version=1, text=text, scope=PinScope.SESSION, author="user", created_at=NOON
    )
