"""
Whether a rendered transcript shows all messages, and pairs each result with its call.

For probe transcripts in which no word occurs twice, and no id inside a word.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentmem.inference.chat.template_messages import RESULT_OF, Calls, shown_call_id
from agentmem.types import Message, Role


@dataclass(frozen=True, slots=True)
class _Shown:
    """A message's location in the rendered text, and the text before and after it."""

    message: Message
    written: str
    before: str
    behind: str


def shows_pairs(messages: Sequence[Message], text: str, form: Calls) -> bool:
    """
    Whether *text* has every word of *messages* in order, and pairs each result with its call.

    Consecutive results may be reordered. A result is paired with its call by its order, by the
    label with the call's name, or by the call's id, in the *form* of calls, beside both.
    """
    found = _find(messages, text)
    if found is None:
        return False
    ids = {
        call.id: shown_call_id(call.id, form) for message in messages for call in message.tool_calls
    }
    names = {call.id: call.name for message in messages for call in message.tool_calls}
    with_id = _results_with_id(found, ids)
    waiting: list[str] = []
    for shown in found:
        message, call_id = shown.message, shown.message.tool_call_id
        if message.tool_calls:
            waiting = [call.id for call in message.tool_calls]
        if call_id not in names:
            continue
        in_place = (waiting.pop(0) if waiting else None) == call_id
        # A template that shows the name distinguishes two calls of one name by order.
        is_named = RESULT_OF in shown.before and names[call_id] in shown.before
        if not (in_place or is_named or call_id in with_id):
            return False
    return True


def _results_with_id(found: Sequence[_Shown], ids: dict[str, str]) -> set[str]:
    """Return the calls for which each result has the id on the same side as its neighbours."""
    either = re.compile("|".join(map(re.escape, ids.values())) or r"(?!)")
    told: set[str] = set()
    for run in _runs(found):
        leads = trails = True
        for shown in run:
            shown_id = ids.get(shown.message.tool_call_id or "")
            leads = leads and either.findall(shown.before)[-1:] == [shown_id]
            trails = trails and either.findall(shown.behind)[:1] == [shown_id]
        if leads or trails:
            told |= {shown.message.tool_call_id or "" for shown in run}
    for shown in found:
        around = f"{shown.before}{shown.written}{shown.behind}"
        told -= {call.id for call in shown.message.tool_calls if ids[call.id] not in around}
    return told


def _runs(found: Sequence[_Shown]) -> Iterator[list[_Shown]]:
    """Return the groups of adjacent results."""
    run: list[_Shown] = []
    for shown in found:
        if shown.message.role is Role.TOOL:
            run.append(shown)
        elif run:
            yield run
            run = []
    if run:
        yield run


def _find(messages: Sequence[Message], text: str) -> list[_Shown] | None:
    """Return *messages* in the order of *text*; None where a word is missing or out of order."""
    spans: list[tuple[int, int, Message]] = []
    begin = end = 0
    was_result = False
    for message in messages:
        is_result = message.role is Role.TOOL
        if not (is_result and was_result):
            begin = end
        was_result = is_result
        span = _span(message, text, begin)
        if span is None:
            return None
        spans.append((*span, message))
        end = max(end, span[1])
    spans.sort(key=lambda span: span[:2])
    starts = [start for start, _, _ in spans[1:]] + [len(text)]
    ends = [0] + [end for _, end, _ in spans[:-1]]
    return [
        _Shown(message, text[start:end], text[last:start], text[end:following])
        for (start, end, message), last, following in zip(spans, ends, starts, strict=True)
    ]


def _span(message: Message, text: str, begin: int) -> tuple[int, int] | None:
    """Return the location of the words of *message* in *text*, from *begin* on."""
    start, end = None, begin
    for word in _words(message):
        found = text.find(word, end)
        if found < 0:
            return None
        start = found if start is None else start
        end = found + len(word)
    return (begin if start is None else start), end


def _words(message: Message) -> Iterator[str]:
    if message.text:
        yield message.text
    for call in message.tool_calls:
        yield call.name
        for key, value in call.parsed_arguments().items():
            yield from (key, value)
