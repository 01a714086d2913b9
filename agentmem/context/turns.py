"""Messages as turns. A turn is the unit that the recent window keeps or lets go."""

from collections.abc import Iterable, Sequence

from agentmem.types import Role, StoredMessage, Turn


def group_turns(messages: Iterable[StoredMessage]) -> tuple[Turn, ...]:
    """
    Cut *messages* (oldest first) into turns, one per user message.

    What stands before the first user message is a turn of its own: a subtask may begin with a
    tool result, and a conversation with a greeting.
    """
    groups: list[list[StoredMessage]] = []
    for stored in messages:
        if not groups or stored.message.role is Role.USER:
            groups.append([])
        groups[-1].append(stored)
    return tuple(Turn(messages=tuple(group)) for group in groups)


def open_calls(messages: Sequence[StoredMessage]) -> dict[str, int]:
    """Name the tool calls without a result: call id and position of the message that made it."""
    waiting: dict[str, int] = {}
    for stored in messages:
        for call in stored.message.tool_calls:
            waiting[call.id] = stored.position
        if stored.message.tool_call_id is not None:
            waiting.pop(stored.message.tool_call_id, None)
    return waiting


def legal_fork(messages: Sequence[StoredMessage], head: int) -> int:
    """
    Find the last position at or before *head* where no call is open.

    A branch that forked between a call and its result would show the model a question that it
    can never see answered.

    Args:
        messages: the end of the branch, from a turn's start to *head*.
        head: position of the newest message.
    """
    waiting = open_calls(messages)
    return min(waiting.values()) - 1 if waiting else head
