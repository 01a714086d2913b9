"""
The window as the prompt shows it: every call with its results directly after it, in its order.

The store keeps what came when it came. A prompt has to be one that a server takes, and results
that stand in another order than their calls are read as each other's where a template shows
neither id nor name beside a result. So each result is moved up to its call; a call that still
waits has a stand-in, in the prompt alone; and a result whose call is not shown, or has one
already, is a text that names the call.

What is shown of a window is a function of its messages alone, from the first to the last: so what
an earlier prompt showed of a beginning of it is known without being kept.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from agentmem.context.pieces import Shown
from agentmem.types import Message, Role, TextPart, ToolCall

NOT_YET: Final = "[no result yet]"
"""Stands for the result of a call that is still open."""

UNSAID: Final = "\u241e"
"""What no text begins with: it stands where two prompts go on with different texts."""

_LEGAL_ID: Final = re.compile("[A-Za-z0-9_-]{1,40}")


@dataclass(frozen=True, slots=True)
class Placed:
    """A message of a prompt, and the position of the stored one in whose place it stands."""

    position: int
    message: Message


def arrange(
    window: Sequence[Shown],
    before: Mapping[int, Sequence[Message]] | None = None,
    *,
    is_part: bool = False,
) -> list[Placed]:
    """
    Return the messages of *window* as the prompt shows them.

    Args:
        window: what is shown of the branch, by position.
        before: what else stands before the message at a position.
        is_part: whether *window* is only the beginning of what the prompt has. A result that it
            lacks may then come later, so it ends with that round, and in the place of the result
            stands what no result begins with.
    """
    return list(_placed(window, before or {}, is_part=is_part))


def _placed(
    window: Sequence[Shown], before: Mapping[int, Sequence[Message]], *, is_part: bool
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
            # Something was said between the call and its result: no prompt ends in that.
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


def _match(window: Sequence[Shown]) -> dict[tuple[int, str], Shown]:
    """Return the result of each call, by the place of the message that made it and its id."""
    made: dict[str, int] = {}
    results: dict[tuple[int, str], Shown] = {}
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
    """The ids of the calls of one prompt: each once, in letters that every server takes."""

    def __init__(self) -> None:
        self._shown: set[str] = set()

    def show(self, call_id: str) -> str:
        """Return the id that the call is shown under: its own, where that may be."""
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
    Write a result without its call: who reads it must not take it for the user's words.

    Each of its lines is quoted, so none can pass for another speaker's.
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
    """Return *name* without what ends a heading."""
    return " ".join(name.replace("[", "(").replace("]", ")").split())
