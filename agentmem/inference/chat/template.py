"""
Render messages with the model's chat template.

The template's capabilities are probed once, by `template_probes`; unsupported messages are written
another way, by `template_messages`.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Self

from jinja2.exceptions import TemplateError

from agentmem.errors import TranscriptError
from agentmem.inference.chat.call_arguments import Arguments, spellings
from agentmem.inference.chat.compiled_template import compile_template
from agentmem.inference.chat.template_date import DEFAULT_DATE, date_variables, with_named_date
from agentmem.inference.chat.template_messages import (
    REASONING_FIELDS,
    Entry,
    Escape,
    TemplateCapabilities,
    Transcript,
)
from agentmem.inference.chat.template_probes import (
    find_default_system,
    find_thoughts,
    find_traits,
    only_appends,
    prompt_tail,
    write_opening,
)
from agentmem.types import (
    Message,
    ReasoningPart,
    Role,
    names_reasoning,
    open_reasoning,
    split_reasoning,
)

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""The default, for models without a template."""

_REFUSALS = (TemplateError, TypeError, ValueError, LookupError)


class ChatTemplate:
    """
    One model's template.

    Args:
        tokenizer: a transformers tokenizer with the template.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        source = tokenizer.chat_template
        if isinstance(source, Mapping):
            source = source.get("default") or next(iter(source.values()))
        source = source or PLAIN_TEMPLATE
        self.source: str = with_named_date(source)
        self._date_variables = date_variables(DEFAULT_DATE)
        self.reads_thoughts = _reads_thoughts(tokenizer, source)
        """Whether reasoning is separated from answers: the model's family has reasoning tags."""

        self._compiled = compile_template(self.source)
        traits = find_traits(self._write_probe)
        if any(field in source for field in REASONING_FIELDS):
            traits = find_thoughts(self._write_probe, traits)
        self.traits = traits
        self._open_thought = open_reasoning(prompt_tail(self._write_probe, traits))

        self.is_concatenative = only_appends(self._write_probe, self.traits)
        self.opening = write_opening(self._write_probe, self.traits)
        self.default_system = find_default_system(self._write_probe, self.traits)

    def at_date(self, day: date) -> Self:
        """Return the template with the date *day*; this one where it would print the same."""
        other = copy.copy(self)
        other._date_variables = date_variables(day)  # noqa: SLF001 - a copy of this one
        other.opening = write_opening(other._write_probe, other.traits)  # noqa: SLF001
        other.default_system = find_default_system(other._write_probe, other.traits)  # noqa: SLF001
        return self if other.opening == self.opening else other

    def write(
        self,
        messages: Sequence[Message],
        contents: Sequence[str],
        escape: Escape,
        *,
        add_generation_prompt: bool,
    ) -> str:
        """
        Render *messages*.

        Args:
            messages: the transcript.
            contents: the text of each, escaped.
            escape: applied to all other shown texts.
            add_generation_prompt: whether the model speaks next.

        Raises:
            TranscriptError: the template rejects them.
        """
        for traits in (self.traits, _by_value(self.traits)):
            arguments = Arguments(escape, _texts(messages, contents))
            entries = self._entries(messages, contents, traits, escape, arguments)
            written = self._render(entries, add_generation_prompt=add_generation_prompt)
            if (text := arguments.restore(written)) is not None:
                return text
        raise AssertionError("values are written wherever the template likes")

    def content(self, message: Message) -> str:
        """Return the shown text of *message*, without earlier reasoning."""
        return self.split(message.text)[1] if message.role is Role.ASSISTANT else message.text

    def thought(self, message: Message) -> str:
        """Return the reasoning of *message*, of its reasoning parts and of its text."""
        if message.role is not Role.ASSISTANT:
            return ""
        parts = [part.text for part in message.parts if isinstance(part, ReasoningPart)]
        return "\n\n".join(filter(None, [*parts, self.split(message.text)[0]]))

    def split(self, text: str, *, is_generated: bool = False) -> tuple[str, str]:
        """
        Return reasoning and answer in a *text* of the model; the reasoning is empty without tags.

        Generated text may begin inside reasoning that the prompt has opened.
        """
        opened = self._open_thought if is_generated else ""
        return split_reasoning(opened + text) if self.reads_thoughts else ("", text)

    def _write_probe(
        self,
        messages: Sequence[Message],
        traits: TemplateCapabilities,
        *,
        add_generation_prompt: bool,
    ) -> str:
        contents = [self.content(message) for message in messages]
        arguments = Arguments(str, _texts(messages, contents))
        entries = self._entries(messages, contents, traits, str, arguments)
        # Each probe is rendered both ways: the fast one is used if the output is equal.
        if self._compiled is not None and self._written_or_none(
            self._render, entries, add_generation_prompt
        ) != self._written_or_none(self._apply, entries, add_generation_prompt):
            self._compiled = None
        text = self._render(entries, add_generation_prompt=add_generation_prompt)
        restored = arguments.restore(text)
        return text if restored is None else restored

    def _entries(
        self,
        messages: Sequence[Message],
        contents: Sequence[str],
        traits: TemplateCapabilities,
        escape: Escape,
        arguments: Arguments,
    ) -> list[Entry]:
        transcript = Transcript(traits, escape, arguments)
        for message, content in zip(messages, contents, strict=True):
            thought = escape(self.thought(message)) if traits.thoughts else ""
            transcript.add(message, content, thought)
        return transcript.entries()

    @staticmethod
    def _written_or_none(write: Any, entries: Sequence[Entry], prompt: bool) -> str | None:  # noqa: FBT001
        """Render *entries* with *write*; None if it rejects them."""
        try:
            text: str = write(entries, add_generation_prompt=prompt)
        except TranscriptError:
            return None
        return text

    def _render(self, entries: Sequence[Entry], *, add_generation_prompt: bool) -> str:
        """
        Render *entries*.

        Raises:
            TranscriptError: the template rejects them.
        """
        if self._compiled is None or not entries:
            return self._apply(entries, add_generation_prompt=add_generation_prompt)
        try:
            text: str = self._compiled.render(
                **self._tokenizer.special_tokens_map,
                messages=entries,
                tools=None,
                documents=None,
                add_generation_prompt=add_generation_prompt,
                **self._date_variables,
            )
        except _REFUSALS as error:
            raise _refusal(error) from error
        return text

    def _apply(self, entries: Sequence[Entry], *, add_generation_prompt: bool) -> str:
        try:
            text: str = self._tokenizer.apply_chat_template(
                list(entries),
                chat_template=self.source,
                tokenize=False,
                add_generation_prompt=add_generation_prompt,
                **self._date_variables,
            )
        except _REFUSALS as error:
            raise _refusal(error) from error
        return text


def _refusal(error: Exception) -> TranscriptError:
    return TranscriptError(f"the model's chat template rejects these messages: {error}")


def _reads_thoughts(tokenizer: Any, source: str) -> bool:
    """Whether the template or the control tokens of a model have reasoning tags."""
    tokens = getattr(tokenizer, "added_tokens_decoder", {}).values()
    takes_field = any(field in source for field in REASONING_FIELDS)
    return (
        takes_field
        or names_reasoning(source)
        or any(names_reasoning(token.content) for token in tokens)
    )


def _texts(messages: Sequence[Message], contents: Sequence[str]) -> Iterator[str]:
    """Yield all texts of *messages* that a template may show."""
    yield from contents
    for message in messages:
        yield message.name or ""
        yield message.tool_call_id or ""
        # The text may contain reasoning, too.
        yield message.text
        yield from (part.text for part in message.parts if isinstance(part, ReasoningPart))
        for call in message.tool_calls:
            yield from (call.id, call.name, *spellings(call))


def _by_value(traits: TemplateCapabilities) -> TemplateCapabilities:
    """Return *traits* for a transcript whose arguments the template writes field by field."""
    calls = traits.calls
    return traits if calls is None else replace(traits, calls=replace(calls, whole=False))
