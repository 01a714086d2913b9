"""
Reorder the window for the prompt: every call is followed by its results, in order.

The store has messages in order of arrival. A prompt must be valid for servers, and results in
another order than their calls are confused where a template shows neither id nor name of a result.
So each result is moved up to its call; an open call has a synthetic result, in the prompt only; and
a result whose call is not shown, or has one already, is a text that names the call.

The output is a function of the messages of the window only, from first to last: so the output of
an earlier prompt for a prefix of it can be recomputed.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agentmem.context.prompt_messages import PromptMessage
from agentmem.types import Message, Role, TextPart, ToolCall

NOT_YET: Final = "[no result yet]"
"""Synthetic result of an open call."""

UNSAID: Final = "\u241e"
"""No text begins with this: a marker where two prompts continue with different texts."""

_LEGAL_ID: Final = re.compile("[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Placed:
    """A message of a prompt, and the position of the stored one that it shows."""

    position: int
    message: Message


def arrange(
    window: Sequence[PromptMessage],
    before: Mapping[int, Sequence[Message]] | None = None,
    *,
    is_part: bool = False,
) -> list[Placed]:
    """
    Return the messages of *window* as the prompt shows them.

    Args:
        window: the shown messages of the branch, by position.
        before: other messages to insert before a position.
        is_part: whether *window* is only a prefix of the prompt. A missing result may then come
            later, so the output ends with that round, and with a marker in place of the result.
    """
    return list(_placed(window, before or {}, is_part=is_part))


def _placed(
    window: Sequence[PromptMessage], before: Mapping[int, Sequence[Message]], *, is_part: bool
) -> Iterator[Placed]:
    results = _match(window)
    taken = {id(result) for result in results.values()}
    ids = _Ids()
    is_answer = ends_here = False
    for index, piece in enumerate(window):
        for message in before.get(piece.position, ()):
            yield Placed(piece.position, message)
        message = piece.message
        if id(piece) in taken and is_answer:
            # Messages are between the call and its result: no prompt ends with them.
            yield Placed(piece.position, _came_now(message))
        if piece.is_silent or id(piece) in taken:
            is_answer &= piece.is_silent
            continue
        is_answer = message.role is Role.ASSISTANT and not message.tool_calls
        if message.role is Role.TOOL:
            yield Placed(piece.position, _as_text(message))
        elif not message.tool_calls:
            yield Placed(piece.position, message)
        else:
            shown_ids = [ids.show(call.id) for call in message.tool_calls]
            yield Placed(piece.position, _with_ids(message, shown_ids))
            for call, shown_id in zip(message.tool_calls, shown_ids, strict=True):
                result = results.get((index, call.id))
                ends_here |= result is None and is_part
                answer = _stand_in(call, is_part=is_part) if result is None else result.message
                yield Placed(piece.position, _answering(answer, shown_id))
            if ends_here:
                return


def _match(window: Sequence[PromptMessage]) -> dict[tuple[int, str], PromptMessage]:
    """Return the result of each call, by the index of its message and its id."""
    made: dict[str, int] = {}
    results: dict[tuple[int, str], PromptMessage] = {}
    for index, piece in enumerate(window):
        message = piece.message
        made |= {call.id: index for call in message.tool_calls}
        if message.role is Role.TOOL and not piece.is_silent:
            call_id = message.tool_call_id or ""
            place = made.get(call_id)
            if place is not None:
                results.setdefault((place, call_id), piece)
    return results


class _Ids:
    """The call ids of one prompt: unique, in characters that every server accepts."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def show(self, call_id: str) -> str:
        """Return the shown id of the call: its own if valid and unused."""
        number = 1
        shown = call_id if _LEGAL_ID.fullmatch(call_id) else _hashed(call_id)
        while shown in self._shown:
            number += 1
            shown = _hashed(f"{call_id} {number}")
        self._shown.add(shown)
        return shown


def _hashed(call_id: str) -> str:
    return "call_" + hashlib.sha256(call_id.encode()).hexdigest()[:16]


def _with_ids(message: Message, ids: Sequence[str]) -> Message:
    if all(call.id == shown for call, shown in zip(message.tool_calls, ids, strict=True)):
        return message
    calls = zip(message.tool_calls, ids, strict=True)
    return replace(message, tool_calls=tuple(replace(call, id=shown) for call, shown in calls))


def _answering(result: Message, call_id: str) -> Message:
    return result if result.tool_call_id == call_id else replace(result, tool_call_id=call_id)


def _stand_in(call: ToolCall, *, is_part: bool) -> Message:
    return Message(
        role=Role.TOOL,
        parts=(TextPart(text=UNSAID if is_part else NOT_YET),),
        tool_call_id=call.id,
        name=call.name,
    )


def _as_text(result: Message) -> Message:
    """
    Write a result without its call as text, marked as not the user's.

    Each of its lines is quoted, so that none can imitate another speaker.
    """
    tool = f"the tool {_plain(result.name)}" if result.name else "a tool"
    call = _plain(result.tool_call_id or "")
    heading = f"[result of the call {call}, written by {tool}, not by the user]"
    quoted = [f"> {line}".rstrip() for line in result.text.splitlines()]
    return Message(role=Role.USER, parts=(TextPart(text="\n".join([heading, *quoted])),))


def _came_now(result: Message) -> Message:
    call = _plain(result.tool_call_id or "")
    text = f"[the result of the call {call} came now; it stands with its call]"
    return Message(role=Role.USER, parts=(TextPart(text=text),))


def _plain(name: str) -> str:
    """Return *name* without the characters that end a heading."""
    return " ".join(name.replace("[", "(").replace("]", ")").split())
