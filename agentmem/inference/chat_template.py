"""
From messages to the text that the model's own chat template makes of them.

Templates differ in what they take. What one would refuse or drop in silence (tool results,
several system messages) is found out once, by rendering probes, and written another way.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from jinja2.exceptions import TemplateError

from agentmem.errors import TranscriptError
from agentmem.types import Message, Role, ToolCall

Escape = Callable[[str], str]
Entry = dict[str, Any]

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""For models that come without one."""

# Some templates write today's date. The same messages must give the same prompt tomorrow, so it
# is always the same day for them: as a variable, and as a function that they may call.
_DATE = datetime(2024, 7, 26, tzinfo=UTC)
_CLOCK = "strftime_now"
_STOPPED_CLOCK = (
    f"{{%- macro {_CLOCK}(format) -%}}{{{{- format"
    + "".join(
        f" | replace('%{code}', '{_DATE.strftime('%' + code)}')" for code in "aAbBdejHIMpSYmy"
    )
    + " -}}{%- endmacro +%}"
)
_END_OF_THOUGHT = "</think>"


class ChatTemplate:
    """
    One model's template.

    Args:
        tokenizer: a transformers tokenizer, whose template this is.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        source = tokenizer.chat_template
        if isinstance(source, Mapping):
            source = source.get("default") or next(iter(source.values()))
        source = source or PLAIN_TEMPLATE
        self.source: str = (_STOPPED_CLOCK if _CLOCK in source else "") + source
        self._takes_calls = "tool_calls" in self.source
        self._strips_thought = _END_OF_THOUGHT in self.source
        user, answer = _entry("user", "u"), _entry("assistant", "a")
        if self._takes_calls:
            answer["tool_calls"] = [_structured(ToolCall(id="c", name="f"), str)]
        result = _entry("tool", "PROBE", tool_call_id="c", name="f")
        self._takes_tool_role = self._shows("PROBE", [user, answer, result])
        self._takes_system = self._shows("PROBE", [_entry("system", "PROBE"), user])
        pair = [_entry("system", "PROBE1"), _entry("system", "PROBE2"), user]
        self._takes_systems = self._shows("PROBE1", pair) and self._shows("PROBE2", pair)

    def render(self, entries: Sequence[Entry], *, add_generation_prompt: bool) -> str:
        """
        Write *entries* as the template does.

        Raises:
            TranscriptError: the template refuses them.
        """
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(entries),
                chat_template=self.source,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                date_string=_DATE.strftime("%d %b %Y"),
            )
        except (TemplateError, TypeError, ValueError, LookupError) as error:
            raise TranscriptError(
                f"the model's chat template refuses these messages: {error}"
            ) from error
        return text

    def entries(
        self, messages: Sequence[Message], contents: Sequence[str], escape: Escape
    ) -> list[Entry]:
        """
        Write messages in the form that this template takes.

        Args:
            messages: what was said.
            contents: the text of each, escaped.
            escape: for whatever else of a message is shown.
        """
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        entries = []
        for message, content in zip(messages, contents, strict=True):
            if message.role is Role.ASSISTANT:
                entries.append(self._assistant(message, content, escape))
            elif message.role is Role.TOOL:
                entries.append(self._tool(message, content, names, escape))
            else:
                entries.append(_entry(str(message.role), content))
        return self._settle_system(entries)

    def content(self, message: Message) -> str:
        """Give the text of *message* as it is to be shown; earlier thoughts are not."""
        text = message.text
        if self._strips_thought and message.role is Role.ASSISTANT and _END_OF_THOUGHT in text:
            return text.rpartition(_END_OF_THOUGHT)[2].lstrip("\n")
        return text

    def _assistant(self, message: Message, content: str, escape: Escape) -> Entry:
        if self._takes_calls and message.tool_calls:
            calls = [_structured(call, escape) for call in message.tool_calls]
            return _entry("assistant", content, tool_calls=calls)
        for call in message.tool_calls:
            body = {"name": call.name, "arguments": call.parsed_arguments()}
            written = escape(json.dumps(body, ensure_ascii=False))
            content += ("\n" if content else "") + f"<tool_call>\n{written}\n</tool_call>"
        return _entry("assistant", content)

    def _tool(
        self, message: Message, content: str, names: Mapping[str, str], escape: Escape
    ) -> Entry:
        if not self._takes_tool_role:
            return _entry("user", f"<tool_response>\n{content}\n</tool_response>")
        call_id = message.tool_call_id or ""
        name = message.name or names.get(call_id, "tool")
        return _entry("tool", content, tool_call_id=escape(call_id), name=escape(name))

    def _settle_system(self, entries: list[Entry]) -> list[Entry]:
        """Join the leading system entries where the template takes one, or none at all."""
        count = next((i for i, e in enumerate(entries) if e["role"] != "system"), len(entries))
        if count == 0 or (self._takes_system and (count == 1 or self._takes_systems)):
            return entries
        text = "\n\n".join(entry["content"] for entry in entries[:count])
        rest = entries[count:]
        if self._takes_system:
            return [_entry("system", text), *rest]
        if rest and rest[0]["role"] == "user":
            return [_entry("user", f"{text}\n\n{rest[0]['content']}"), *rest[1:]]
        return [_entry("user", text), *rest]

    def _shows(self, probe: str, entries: Sequence[Entry]) -> bool:
        try:
            return probe in self.render(entries, add_generation_prompt=False)
        except TranscriptError:
            return False


def _entry(role: str, content: str, **more: Any) -> Entry:
    return {"role": role, "content": content, **more}


def _structured(call: ToolCall, escape: Escape) -> Entry:
    arguments = _escaped(call.parsed_arguments(), escape)
    function = {"name": escape(call.name), "arguments": arguments}
    return {"type": "function", "id": escape(call.id), "function": function}


def _escaped(value: Any, escape: Escape) -> Any:
    """Escape each string of a JSON value, keys included."""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, dict):
        return {escape(key): _escaped(item, escape) for key, item in value.items()}
    if isinstance(value, list):
        return [_escaped(item, escape) for item in value]
    return value
