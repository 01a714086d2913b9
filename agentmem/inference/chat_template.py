"""
From messages to the text that the model's own chat template makes of them.

What the template takes is found out once, by `template_probes`; what it does not take is written
another way, by `transcript`.
"""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any, Self

from jinja2.exceptions import TemplateError

from agentmem.errors import TranscriptError
from agentmem.inference.call_arguments import Arguments, spellings
from agentmem.inference.compiled_template import compile_template
from agentmem.inference.template_date import DEFAULT_DATE, date_variables, with_named_date
from agentmem.inference.template_probes import find_traits, only_appends, write_opening
from agentmem.inference.transcript import Entry, Escape, Traits, Transcript
from agentmem.types import Message, Role

PLAIN_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}"
)
"""For models that come without one."""

_END_OF_THOUGHT = "</think>"
_REFUSALS = (TemplateError, TypeError, ValueError, LookupError)


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
        self.source: str = with_named_date(source)
        self._date_variables = date_variables(DEFAULT_DATE)
        self._strips_thought = _END_OF_THOUGHT in self.source
        self._compiled = compile_template(self.source)
        self.traits = find_traits(self._write_probe)
        self.is_concatenative = only_appends(self._write_probe, self.traits)
        self.opening = write_opening(self._write_probe, self.traits)

    def at_date(self, day: date) -> Self:
        """Return the template that prints *day*; this one where it would print the same."""
        other = copy.copy(self)
        other._date_variables = date_variables(day)  # noqa: SLF001 - a copy of this one
        other.opening = write_opening(other._write_probe, other.traits)  # noqa: SLF001
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
        Write *messages* as the template does.

        Args:
            messages: what was said.
            contents: the text of each, escaped.
            escape: for whatever else of a message is shown.
            add_generation_prompt: whether the model is to speak next.

        Raises:
            TranscriptError: the template refuses them.
        """
        for traits in (self.traits, _by_value(self.traits)):
            arguments = Arguments(escape, _texts(messages, contents))
            entries = _entries(messages, contents, traits, escape, arguments)
            written = self._render(entries, add_generation_prompt=add_generation_prompt)
            if (text := arguments.restore(written)) is not None:
                return text
        raise AssertionError("values are written wherever the template likes")

    def content(self, message: Message) -> str:
        """Give the text of *message* as it is to be shown; earlier thoughts are not."""
        text = message.text
        if self._strips_thought and message.role is Role.ASSISTANT and _END_OF_THOUGHT in text:
            return text.rpartition(_END_OF_THOUGHT)[2].lstrip("\n")
        return text

    def _write_probe(
        self, messages: Sequence[Message], traits: Traits, *, add_generation_prompt: bool
    ) -> str:
        contents = [self.content(message) for message in messages]
        arguments = Arguments(str, _texts(messages, contents))
        entries = _entries(messages, contents, traits, str, arguments)
        # Each probe is written both ways: so the short one is used if it does the same.
        if self._compiled is not None and self._written_or_none(
            self._render, entries, add_generation_prompt
        ) != self._written_or_none(self._apply, entries, add_generation_prompt):
            self._compiled = None
        text = self._render(entries, add_generation_prompt=add_generation_prompt)
        restored = arguments.restore(text)
        return text if restored is None else restored

    @staticmethod
    def _written_or_none(write: Any, entries: Sequence[Entry], prompt: bool) -> str | None:  # noqa: FBT001
        """Give what *write* makes of *entries*, None if it refuses them."""
        try:
            text: str = write(entries, add_generation_prompt=prompt)
        except TranscriptError:
            return None
        return text

    def _render(self, entries: Sequence[Entry], *, add_generation_prompt: bool) -> str:
        """
        Write *entries*.

        Raises:
            TranscriptError: the template refuses them.
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
    return TranscriptError(f"the model's chat template refuses these messages: {error}")


def _entries(
    messages: Sequence[Message],
    contents: Sequence[str],
    traits: Traits,
    escape: Escape,
    arguments: Arguments,
) -> list[Entry]:
    transcript = Transcript(traits, escape, arguments)
    for message, content in zip(messages, contents, strict=True):
        transcript.add(message, content)
    return transcript.entries()


def _texts(messages: Sequence[Message], contents: Sequence[str]) -> Iterator[str]:
    """Yield every text of *messages* that a template may show."""
    yield from contents
    for message in messages:
        yield message.name or ""
        yield message.tool_call_id or ""
        for call in message.tool_calls:
            yield from (call.id, call.name, *spellings(call))


def _by_value(traits: Traits) -> Traits:
    """Return *traits* for a transcript in which the template writes arguments in parts."""
    calls = traits.calls
    return traits if calls is None else replace(traits, calls=replace(calls, whole=False))
