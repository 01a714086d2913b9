"""Messages as turns. A turn is the unit that the recent window keeps or lets go."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentmem.types import Origin, Role, StoredMessage, Turn


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


def replaced(messages: Sequence[StoredMessage]) -> frozenset[int]:
    """
    Find the messages, by position, that later ones stand for.

    The closing of a call whose result came before a prompt had shown it closed, and an answer
    that was broken off, unless the user has gone on from it.

    Args:
        messages: the end of a branch, oldest first, up to its newest.
    """
    found: set[int] = set()
    results: dict[str, int] = {}
    for stored in messages:
        call_id = stored.message.tool_call_id
        if call_id is None:
            continue
        if stored.origin is Origin.REPLACES and call_id in results:
            found.add(results[call_id])
        results[call_id] = stored.position
    return frozenset(found | _retried(messages))


def _retried(messages: Sequence[StoredMessage]) -> set[int]:
    """Find the broken-off answers that are to be given anew, or were, before or after them."""
    found: set[int] = set()
    partial: list[int] = []
    is_answered = False
    for stored in messages:
        if stored.message.role is Role.USER:
            # The last one is what the user goes on from, where there is nothing better.
            found.update(partial if is_answered else partial[:-1])
            partial, is_answered = [], False
        elif stored.origin is Origin.PARTIAL:
            partial.append(stored.position)
        else:
            is_answered |= is_answer(stored)
    return found | set(partial)


def is_answer(stored: StoredMessage) -> bool:
    """Whether *stored* is an answer to a turn, and not a step on the way to one."""
    message = stored.message
    is_said = (
        stored.origin in (Origin.SAID, Origin.CUT, Origin.DELETED, Origin.DAMAGED)
        and message.role is Role.ASSISTANT
    )
    return is_said and not message.tool_calls and not message.is_blank


def untold(stored: StoredMessage) -> StoredMessage:
    """Return *stored* without what it says, for a summary that is to pass over it."""
    message = stored.message
    return replace(stored, message=replace(message, parts=(), tool_calls=(), generated=None))
