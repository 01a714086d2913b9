"""Counts, renders and splices exactly as the local model will see it."""

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

from agentmem.errors import TranscriptError
from agentmem.inference.chat_template import ChatTemplate, Entry
from agentmem.inference.encoder import Encoder
from agentmem.protocols import RenderedChat
from agentmem.types import Message, Role, TextPart, ToolCall

_VERSION = "1"
"""Part of the fingerprint: to be raised when the same messages come to give other ids."""

_PRIVATE_USE = tuple(map(chr, chain(range(0xE000, 0xF900), range(0xF0000, 0xFFFFE))))
_MAX_REMEMBERED = 8192
_MAX_RENDERS = 32
"""A prompt takes about eight renders; half of the long ones are of the prompt before."""


class ChatTokenizer:
    """
    A model's tokenizer and chat template: the TokenCounter of a local model.

    Text of a message never becomes a control token: a spelling such as ``<|im_end|>`` is
    encoded in pieces that spell the same. The ids of a message that this model generated are
    kept as they were generated, as long as the template shows its text unchanged.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._template = ChatTemplate(tokenizer)
        self._encoder = Encoder(tokenizer, self._template.source)
        self._fingerprint = _fingerprint(tokenizer, self._template.source)
        # Made here and not by decorating, so that they go when this object goes.
        self._counted = lru_cache(maxsize=_MAX_REMEMBERED)(self._count)
        self._rendered = lru_cache(maxsize=_MAX_RENDERS)(self._render)
        self._spells = lru_cache(maxsize=_MAX_REMEMBERED)(self._spells_text)

    @property
    def fingerprint(self) -> str:
        """Name tokenizer, template and the way they are used here."""
        return self._fingerprint

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that message text never becomes."""
        return self._encoder.control_ids

    def decode(self, token_ids: Sequence[int]) -> str:
        """Spell *token_ids*, control tokens included."""
        return self._encoder.decode(token_ids)

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        """
        Write *messages* as the model's template does, and give the ids.

        Raises:
            TranscriptError: the template refuses these messages in this order.
        """
        return self._rendered(tuple(messages), add_generation_prompt)

    def _render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool,  # noqa: FBT001 - as it is remembered
    ) -> RenderedChat:
        mark, edge = _unused_characters(messages)
        contents = [self._escape(self._template.content(m), mark) for m in messages]
        kept = [i for i, message in enumerate(messages) if self._keeps_ids(message)]
        full = self._write(messages, contents, mark, add_generation_prompt)
        spliced = full
        if kept:
            shown = list(contents)
            for i in kept:
                shown[i] = f"{edge}{i}{edge}"
            spliced = self._write(messages, shown, mark, add_generation_prompt)
            found = re.split(f"{edge}([0-9]+){edge}", spliced)
            if found[1::2] != [str(i) for i in kept] or full != "".join(
                contents[int(part)] if odd % 2 else part for odd, part in enumerate(found)
            ):
                # The template rewrites what was said, so what it writes wins.
                spliced = full
        return RenderedChat(
            text=full.replace(mark, ""),
            token_ids=tuple(self._ids(spliced, messages, mark, edge)),
        )

    def count(self, message: Message) -> int:
        """
        Tell how many tokens *message* adds to a transcript that it is appended to.

        Exact for templates that write one message after the other.
        """
        return self._counted(message)

    def _count(self, message: Message) -> int:
        for before, after in _neighbours(message):
            try:
                with_it = self._render([*before, message, *after], add_generation_prompt=False)
                without = self._render([*before, *after], add_generation_prompt=False)
            except TranscriptError:
                continue
            return max(len(with_it.token_ids) - len(without.token_ids), 0)
        mark, _ = _unused_characters([message])
        return len(self._encoder.encode(self._escape(message.text, mark).split(mark)))

    def turn_end_ids(self) -> frozenset[int]:
        """Find the control token with which the template ends an answer, if it has one."""
        user = Message(role=Role.USER, parts=(TextPart(text="u"),))
        answer = Message(role=Role.ASSISTANT, parts=(TextPart(text="PROBE"),))
        try:
            text = self.render([user, answer], add_generation_prompt=False).text
        except TranscriptError:
            return frozenset()
        tail = text.rpartition("PROBE")[2].strip()
        if self._encoder.control_pattern.fullmatch(tail):
            return frozenset(self._encoder.encode([tail]))
        return frozenset()

    def _write(
        self,
        messages: Sequence[Message],
        contents: Sequence[str],
        mark: str,
        prompt: bool,  # noqa: FBT001 - passed on
    ) -> str:
        def escape(text: str) -> str:
            return self._escape(text, mark)

        entries: list[Entry] = self._template.entries(messages, contents, escape)
        return self._template.render(entries, add_generation_prompt=prompt)

    def _ids(self, text: str, messages: Sequence[Message], mark: str, edge: str) -> list[int]:
        ids: list[int] = []
        runs: list[str] = []
        for odd, part in enumerate(re.split(f"{edge}([0-9]+){edge}", text)):
            if not odd % 2:
                runs = part.split(mark)
                # The empty run says that something came before.
                ids += self._encoder.encode(["", *runs] if odd else runs)
            elif (generated := messages[int(part)].generated) is not None:
                ids += generated.token_ids
        return ids

    def _escape(self, text: str, mark: str) -> str:
        """
        Cut each spelling of a control token in two with *mark*.

        One that is a single character cannot be cut; U+FFFD is put in its place.
        """

        def cut(found: re.Match[str]) -> str:
            spelling = found[0]
            return spelling[0] + mark + spelling[1:] if len(spelling) > 1 else "\ufffd"

        return self._encoder.control_pattern.sub(cut, text)

    def _keeps_ids(self, message: Message) -> bool:
        generated = message.generated
        return (
            generated is not None
            and generated.fingerprint == self.fingerprint
            and not message.tool_calls
            and bool(generated.token_ids)
            and self._spells(generated.token_ids, message.text)
        )

    def _spells_text(self, token_ids: tuple[int, ...], text: str) -> bool:
        return self.control_ids.isdisjoint(token_ids) and self.decode(token_ids) == text


def _unused_characters(messages: Sequence[Message]) -> tuple[str, str]:
    """Find two private-use characters that occur nowhere in *messages*."""
    shown = [message.text for message in messages]
    for message in messages:
        shown += [message.name or "", message.tool_call_id or ""]
        # Arguments are parsed before they are shown: JSON may hide a character as an escape.
        shown += [
            f"{call.id}{call.name}{json.dumps(call.parsed_arguments(), ensure_ascii=False)}"
            for call in message.tool_calls
        ]
    free = (letter for letter in _PRIVATE_USE if not any(letter in text for text in shown))
    return next(free), next(free)


def _neighbours(message: Message) -> Iterator[tuple[list[Message], list[Message]]]:
    """Give transcripts, as what is before and after, in which *message* is in its place."""
    user = Message(role=Role.USER, parts=(TextPart(text="u"),))
    answer = Message(role=Role.ASSISTANT, parts=(TextPart(text="a"),))
    if message.role is Role.SYSTEM:
        yield [Message(role=Role.SYSTEM, parts=(TextPart(text="s"),))], [user]
        yield [], [user]
    elif message.role is Role.USER:
        yield [user, answer], []
    elif message.role is Role.ASSISTANT:
        yield [user], []
    else:
        call = ToolCall(id=message.tool_call_id or "c", name=message.name or "f")
        yield [user, Message(role=Role.ASSISTANT, tool_calls=(call,))], []


def _fingerprint(tokenizer: Any, template: str) -> str:
    hasher = hashlib.sha256(f"{_VERSION}:{len(template)}:{template}".encode())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        hasher.update(backend.to_str().encode())
    else:
        hasher.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    return hasher.hexdigest()[:32]
