"""
Generated ids for tool calls without one, or with a duplicate one.

Some engines return no ids, and some equal ones. A generated id has letters, digits and ``_``, which
every provider accepts, and is a function of the call and its position.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from agentmem.errors import TranscriptError
from agentmem.types import Message, Role, ToolCall

_ID_LETTERS: Final = 24
_AGAIN: Final = "_again"


def with_ids(message: Message, waiting: Sequence[tuple[str, str]], head: int) -> Message:
    """
    Return *message* with an id for each call that it makes or answers.

    Args:
        message: the message to store.
        waiting: id and name of each open call, in order.
        head: the position before the message.

    Raises:
        TranscriptError: a result without an id is ambiguous.
    """
    if message.role is Role.TOOL:
        call_id = message.tool_call_id or _only(message, waiting)
        open_ids = [open_id for open_id, _ in waiting]
        if call_id not in open_ids:
            # The second result of two calls with the same original id.
            again = f"{call_id}{_AGAIN}"
            call_id = next((one for one in open_ids if one.startswith(again)), call_id)
        return (
            message if call_id == message.tool_call_id else replace(message, tool_call_id=call_id)
        )
    ids = [call.id for call in message.tool_calls]
    if all(ids) and len(set(ids)) == len(ids):
        return message
    return replace(message, tool_calls=_minted(message.tool_calls, head))


def _minted(calls: Sequence[ToolCall], head: int) -> tuple[ToolCall, ...]:
    taken = {call.id for call in calls}
    seen: set[str] = set()
    minted = []
    for index, call in enumerate(calls):
        call_id = call.id
        if not call_id:
            call_id = _new_id(call, head, index)
        elif call_id in seen:
            numbers = range(2, len(calls) + len(taken) + 2)
            fresh = (f"{call.id}{_AGAIN}{number}" for number in numbers)
            call_id = next(one for one in fresh if one not in taken)
        seen.add(call_id)
        taken.add(call_id)
        minted.append(call if call_id == call.id else replace(call, id=call_id))
    return tuple(minted)


def _new_id(call: ToolCall, head: int, index: int) -> str:
    facts = repr((head, index, call.name, call.arguments))
    return f"call_{hashlib.sha256(facts.encode()).hexdigest()[:_ID_LETTERS]}"


def _only(message: Message, waiting: Sequence[tuple[str, str]]) -> str:
    """Return the id of the only call that a result without a ``tool_call_id`` can answer."""
    named = [one for one in waiting if message.name in (None, one[1])]
    if len(named) == 1:
        return named[0][0]
    by = "" if message.name is None else f" of {message.name!r}"
    if not named:
        raise TranscriptError(
            f"a result came without a tool_call_id, and no call{by} waits for one: say which call "
            "it answers"
        )
    ids = ", ".join(repr(call_id) for call_id, _ in named)
    raise TranscriptError(
        f"a result came without a tool_call_id while {len(named)} calls{by} wait for one: say "
        f"which of {ids} it answers"
    )
