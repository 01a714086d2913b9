"""
Messages in the form that a chat template accepts.

Templates differ in which messages they reject or silently drop. `TemplateCapabilities` describes
one template; unsupported messages are written another way, never dropped or reordered.
"""

import hashlib
import json
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentmem.inference.chat.call_arguments import Arguments, raw_object
from agentmem.types import Message, Role, ToolCall

Escape = Callable[[str], str]
Entry = dict[str, Any]

_FILLER = "..."
"""Filler message of the other role where a template requires alternating roles."""

REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")
"""Field names of reasoning; each template reads one of them."""

RESULT_OF = "(result of"
"""Label of a result that is out of order."""

_MAX_LABEL = 200
"""Characters of a call's arguments in the label of a result."""

_ID_LETTERS = string.digits + string.ascii_lowercase
_SHORT_ID = re.compile("[0-9A-Za-z]{9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Calls:
    """The format of tool calls in a template."""

    as_text: bool = False
    """Arguments as JSON text, not as an object."""

    whole: bool = False
    """All arguments of a call as one JSON text, which is replaced by the model's."""

    short_ids: bool = False
    """Ids of exactly nine letters and digits; others are replaced by their hash."""

    shows_ids: bool = False
    """
    The id is written beside the call and beside its result. Else results are paired by order
    only: that of the calls.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateCapabilities:
    """
    Messages that a template accepts; by default those that every template accepts.

    Args:
        repeats: two consecutive messages of one role. If not, user and assistant alternate, not
            counting calls and their results, which only `calls` writes.
        any_first: a first message that is not the user's.
        system: a system message, shown at its position.
        systems: several of them.
        system_alone: a system message without any other.
        calls: structured tool calls, and results in the tool role. Else both are text.
        parallel: more than one call in a message.
        text_with_calls: text and calls in one message. Else the text is a separate message before
            the calls, if possible, or all of it is text.
        loose_results: the tool role for a result whose call is written as text or not shown.
        late_results: the tool role for a result that other messages separate from its calls and
            their results.
        thoughts: reasoning in a separate field, which the template shows selectively, mostly
            within its tool loop.
        thoughts_beside_all: also in a message with both calls and text.
    """

    repeats: bool = False
    any_first: bool = False
    system: bool = False
    systems: bool = False
    system_alone: bool = False
    calls: Calls | None = None
    parallel: bool = False
    text_with_calls: bool = False
    loose_results: bool = False
    late_results: bool = False
    thoughts: bool = False
    thoughts_beside_all: bool = False


class Transcript:
    """
    Converts messages one by one.

    The output depends on earlier messages only, except for consecutive results: where they are
    paired by order only, they are sorted in the order of their calls, and one that is out of order
    names its call.
    """

    def __init__(
        self, traits: TemplateCapabilities, escape: Escape, arguments: Arguments | None = None
    ) -> None:
        self._traits = traits
        self._escape = escape
        # Its output has placeholders, which `Arguments` replaces afterwards.
        self._arguments = arguments or Arguments(escape, ())
        self._entries: list[Entry] = []
        # Calls by id, and their entry if written in the template's format.
        self._calls: dict[str, ToolCall] = {}
        self._structured: dict[str, Calls] = {}
        self._round = _Round(())
        self._results: list[tuple[Message, str]] = []
        self._has_gone_on = True
        """Whether other messages separate the current results from their calls."""

    def add(self, message: Message, content: str, thought: str = "") -> None:
        """Add *message*, with its shown text *content* and its reasoning *thought*."""
        if message.role is Role.TOOL:
            self._results.append((message, content))
            return
        self._add_results()
        if message.tool_calls:
            self._round = _Round(message.tool_calls)
            self._add_calls(message.tool_calls, content)
        else:
            self._entries.append(_entry(str(message.role), content))
        last = self._entries[-1]
        beside_all = "tool_calls" in last and bool(last["content"].strip())
        if (
            thought
            and self._traits.thoughts
            and (self._traits.thoughts_beside_all or not beside_all)
        ):
            last |= dict.fromkeys(REASONING_FIELDS, thought)

    def entries(self) -> list[Entry]:
        """Return the converted messages, in the form that the template accepts."""
        self._add_results()
        num_system = next(
            (i for i, entry in enumerate(self._entries) if entry["role"] != "system"),
            len(self._entries),
        )
        system, rest = self._entries[:num_system], self._entries[num_system:]
        is_taken = self._traits.system and bool(rest or self._traits.system_alone)
        if system and not is_taken:
            texts = [entry["content"] for entry in system]
            if rest and rest[0]["role"] == "user":
                texts.append(rest.pop(0)["content"])
            rest = [_entry("user", "\n\n".join(texts)), *rest]
            system = []
        elif len(system) > 1 and not self._traits.systems:
            system = [_entry("system", "\n\n".join(entry["content"] for entry in system))]
        if rest and rest[0]["role"] != "user" and not self._traits.any_first:
            rest.insert(0, _entry("user", _FILLER))
        return [*system, *(rest if self._traits.repeats else _take_turns(rest))]

    def _add_calls(self, calls: Sequence[ToolCall], content: str) -> None:
        traits, form = self._traits, self._traits.calls
        self._calls |= {call.id: call for call in calls}
        # A later call may reuse the id, in another format.
        for call in calls:
            self._structured.pop(call.id, None)
        has_text = bool(content.strip())
        may_have_text = traits.text_with_calls or traits.repeats
        is_parallel = len(calls) > 1
        if (
            form is None
            or (is_parallel and not traits.parallel)
            or (has_text and not may_have_text)
        ):
            written = [content] if content else []
            written += [self._as_text(call) for call in calls]
            self._entries.append(_entry("assistant", "\n".join(written)))
            return
        if has_text and not traits.text_with_calls:
            self._entries.append(_entry("assistant", content))
            content = ""
        self._structured |= dict.fromkeys((call.id for call in calls), form)
        structured = [self._as_object(call, form) for call in calls]
        self._entries.append(_entry("assistant", content, tool_calls=structured))

    def _add_results(self) -> None:
        """Write the pending results."""
        results, self._results = self._results, []
        last = self._entries[-1] if self._entries else {}
        self._has_gone_on = last.get("role") != "tool" and "tool_calls" not in last
        if any(not self._shows_id(message) for message, _ in results):
            results.sort(key=lambda result: self._round.place(result[0]))
        for message, content in results:
            in_place = self._round.takes(message)
            if not in_place and self._calls and not self._shows_id(message):
                content = f"{self._label(message)}\n{content}"  # noqa: PLW2901 - as it is shown
            self._entries.append(self._result(message, content))

    def _shows_id(self, message: Message) -> bool:
        form = self._structured.get(message.tool_call_id or "")
        return form is not None and form.shows_ids and not self._is_text(message)

    def _is_text(self, message: Message) -> bool:
        """Whether a result is too late for the tool role, although its call is structured."""
        is_late = self._has_gone_on or not self._round.has(message)
        is_structured = (message.tool_call_id or "") in self._structured
        return is_structured and is_late and not self._traits.late_results

    def _label(self, message: Message) -> str:
        """Label a result with its call, where its order would suggest another one."""
        call = self._calls.get(message.tool_call_id or "")
        if call is None:
            return f"{RESULT_OF} an earlier call of {self._escape(message.name or 'tool')})"
        arguments = call.arguments
        if len(arguments) > _MAX_LABEL:
            arguments = f"{arguments[:_MAX_LABEL]}..."
        named = self._escape(f"{call.name} {arguments}")
        return f"{RESULT_OF} {self._round.describe(call)}: {named})"

    def _result(self, message: Message, content: str) -> Entry:
        call_id = message.tool_call_id or ""
        form = self._structured.get(call_id)
        # With alternating roles, the result of a call that is text is a turn too.
        is_loose = self._traits.loose_results and self._traits.repeats
        if self._is_text(message) or (form is None and not is_loose):
            return _entry("user", f"<tool_response>\n{content}\n</tool_response>")
        call = self._calls.get(call_id)
        name = message.name or (call.name if call else "tool")
        shown_id = self._escape(shown_call_id(call_id, form or self._traits.calls or Calls()))
        return _entry("tool", content, tool_call_id=shown_id, name=self._escape(name))

    def _as_text(self, call: ToolCall) -> str:
        name = json.dumps(call.name, ensure_ascii=False)
        written = self._escape(f'{{"name": {name}, "arguments": {raw_object(call)}}}')
        return f"<tool_call>\n{written}\n</tool_call>"

    def _as_object(self, call: ToolCall, form: Calls) -> Entry:
        if form.as_text:
            arguments: Any = self._escape(raw_object(call))
        else:
            read = self._arguments.whole if form.whole else self._arguments.by_value
            arguments = read(call)
        function = {"name": self._escape(call.name), "arguments": arguments}
        call_id = self._escape(shown_call_id(call.id, form))
        return {"type": "function", "id": call_id, "function": function}


class _Round:
    """
    The calls of one message, whose results are paired by order.

    Args:
        calls: these calls, in their order.
    """

    def __init__(self, calls: Sequence[ToolCall]) -> None:
        self._places = {call.id: place for place, call in enumerate(calls)}
        self._num_taken = 0

    def place(self, result: Message) -> int:
        """Return the index of the call of *result*; past the last one for another round's."""
        return self._places.get(result.tool_call_id or "", len(self._places))

    def has(self, result: Message) -> bool:
        """Whether *result* answers one of these calls."""
        return result.tool_call_id in self._places

    def takes(self, result: Message) -> bool:
        """Whether *result*, written next, is in the order of the calls."""
        is_next = self.place(result) == self._num_taken < len(self._places)
        self._num_taken += 1
        return is_next

    def describe(self, call: ToolCall) -> str:
        """Describe round and index of *call* in words."""
        place = self._places.get(call.id)
        return "an earlier call" if place is None else f"call {place + 1} of {len(self._places)}"


def shown_call_id(call_id: str, form: Calls) -> str:
    """Return *call_id* in a form that the template accepts."""
    if not form.short_ids or _SHORT_ID.fullmatch(call_id):
        return call_id
    return _shortened(call_id)


def _take_turns(entries: Sequence[Entry]) -> list[Entry]:
    """
    Alternate user and assistant.

    Consecutive messages of one role are merged. Where calls, which do not count as a turn, are
    between them, a filler of the other role is inserted.
    """
    settled: list[Entry] = []
    counted: Entry | None = None
    for entry in entries:
        if entry["role"] == "tool" or "tool_calls" in entry:
            settled.append(entry)
            continue
        if counted is not None and counted["role"] == entry["role"]:
            if settled[-1] is counted:
                counted["content"] += f"\n\n{entry['content']}"
                continue
            other = "assistant" if entry["role"] == "user" else "user"
            settled.append(_entry(other, _FILLER))
        counted = dict(entry)
        settled.append(counted)
    return settled


def _entry(role: str, content: str, **more: Any) -> Entry:
    return {"role": role, "content": content, **more}


def _shortened(call_id: str) -> str:
    number = int.from_bytes(hashlib.sha256(call_id.encode()).digest())
    letters = []
    for _ in range(9):
        number, letter = divmod(number, len(_ID_LETTERS))
        letters.append(_ID_LETTERS[letter])
    return "".join(letters)
