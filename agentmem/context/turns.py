"""Group messages into turns, the units that the recent window keeps or drops."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentmem.types import Origin, Role, StoredMessage, Turn


def group_turns(messages: Iterable[StoredMessage]) -> tuple[Turn, ...]:
    """
    Group *messages* (oldest first) into turns, one per user message.

    Messages before the first user message are a separate turn: a subtask may begin with a tool
    result, and a conversation with a greeting.
    """
    groups: list[list[StoredMessage]] = []
    for stored in messages:
        if not groups or stored.message.role is Role.USER:
            groups.append([])
        groups[-1].append(stored)
    return tuple(Turn(messages=tuple(group)) for group in groups)


def open_calls(messages: Sequence[StoredMessage]) -> dict[str, int]:
    """Return the tool calls without a result: call id and position of the calling message."""
    waiting: dict[str, int] = {}
    for stored in messages:
        for call in stored.message.tool_calls:
            waiting[call.id] = stored.position
        if stored.message.tool_call_id is not None:
            waiting.pop(stored.message.tool_call_id, None)
    return waiting


def legal_fork(messages: Sequence[StoredMessage], head: int) -> int:
    """
    Return the last position at or before *head* without open calls.

    A branch forked between a call and its result would never have the result.

    Args:
        messages: the end of the branch, from a turn's start to *head*.
        head: position of the newest message.
    """
    waiting = open_calls(messages)
    return min(waiting.values()) - 1 if waiting else head


def replaced(messages: Sequence[StoredMessage]) -> frozenset[int]:
    """
    Return the positions of messages that later ones replace.

    The synthetic result of a call whose result came before any prompt showed it, and an interrupted
    answer, unless the user has continued from it.

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
    """Return the interrupted answers that will be, or were, regenerated."""
    found: set[int] = set()
    partial: list[int] = []
    is_answered = False
    for stored in messages:
        if stored.message.role is Role.USER:
            # The user continues from the last one, if there is no complete answer.
            found.update(partial if is_answered else partial[:-1])
            partial, is_answered = [], False
        elif stored.origin is Origin.PARTIAL:
            partial.append(stored.position)
        else:
            is_answered |= is_answer(stored)
    return found | set(partial)


def is_answer(stored: StoredMessage) -> bool:
    """Whether *stored* is the final answer to a turn, not an intermediate step."""
    message = stored.message
    is_said = (
        stored.origin in (Origin.SAID, Origin.CUT, Origin.DELETED, Origin.DAMAGED)
        and message.role is Role.ASSISTANT
    )
    return is_said and not message.tool_calls and not message.is_blank


def untold(stored: StoredMessage) -> StoredMessage:
    """Return *stored* as a synthetic message, so that a summary skips it."""
    return replace(stored, origin=Origin.SYNTHETIC)
