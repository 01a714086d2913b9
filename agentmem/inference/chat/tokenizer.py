"""The token counter of a local model: rendering, counting, and splicing of generated ids."""

import copy
import hashlib
import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain
from typing import Any
from weakref import WeakValueDictionary

from agentmem.errors import InvalidInputError, TranscriptError
from agentmem.inference.chat.call_arguments import spellings
from agentmem.inference.chat.encoder import PromptEncoder
from agentmem.inference.chat.memoize import Remembered
from agentmem.inference.chat.message_segments import EDGE, MARK, Pieces, neighbours
from agentmem.inference.chat.splice import splice
from agentmem.inference.chat.template import ChatTemplate
from agentmem.machine.forks import renew_in_child
from agentmem.protocols import RenderedChat
from agentmem.types import GeneratedIds, Message, ReasoningPart, Role, TextPart
from agentmem.types.short_repr import short_repr

_VERSION = "3"
"""Part of the fingerprint: raise it when the ids of the same messages change."""

_PRIVATE_USE = (range(0xE000, 0xF900), range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))
_MAX_REMEMBERED = 8192
_MAX_DAYS = 32
_MAX_RENDERS = 32
"""A prompt takes about eight renders; half of the long ones are of the previous prompt."""


class ChatTokenizer:
    """
    A model's tokenizer and chat template: the `TokenCounter` of a local model.

    Text of a message never becomes a control token: a spelling such as ``<|im_end|>`` is encoded in
    parts with the same text. The generated ids of a message of this model are kept, if the template
    shows its text unchanged.

    Args:
        tokenizer: a transformers tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._template = ChatTemplate(tokenizer)
        self._encoder = PromptEncoder(tokenizer, self._template.source)
        self._fingerprint = _fingerprint(tokenizer, self._template.source)
        self._start()
        self._dated = _Dated(self)

    def __repr__(self) -> str:
        return short_repr("ChatTokenizer", self.fingerprint)

    def _start(self) -> None:
        """Create the empty caches."""
        self._pieces = Pieces(self._encoder, self._write_marked, self._kept)
        self._shown = Remembered(self._show, _MAX_REMEMBERED)
        self._counted = Remembered(self._count, _MAX_REMEMBERED)
        self._rendered = Remembered(self._render, _MAX_RENDERS)
        self._rewritten = Remembered(self._count_rewritten, _MAX_REMEMBERED)
        self._num_rewritten = 0
        self._spells = Remembered(self._spelling, _MAX_REMEMBERED)

    def at_date(self, day: date) -> "ChatTokenizer":
        """
        Return the counter with the date *day*: this one where the template prints no date.

        Without one a template prints 26 July 2024. Days with equal output share one counter and
        fingerprint; all counters share the tokenizer's cache.
        """
        return self._dated.at(day)

    def _with_template(self, template: ChatTemplate) -> "ChatTokenizer":
        other = copy.copy(self)
        other._template = template  # noqa: SLF001 - a copy of this one
        said = "\0".join((self._fingerprint, *template.opening))
        other._fingerprint = hashlib.sha256(said.encode()).hexdigest()[:32]  # noqa: SLF001
        other._start()  # noqa: SLF001
        return other

    @property
    def fingerprint(self) -> str:
        """Identify tokenizer, template and this version of their use."""
        return self._fingerprint

    @property
    def default_system(self) -> str | None:
        """The template's default system text, if any."""
        return self._template.default_system

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that message text never becomes."""
        return self._encoder.control_ids

    @property
    def is_concatenative(self) -> bool:
        """
        Return whether the text of a message never changes as others follow, byte for byte.

        Where the template trims, merges, strips reasoning or rewrites earlier messages, the common
        prefix of prompts may end early although the window did not slide; see `num_rewritten`.
        """
        return self._template.is_concatenative

    @property
    def num_rewritten(self) -> int:
        """
        Number of answers of this model that were rendered with other ids than generated.

        Each counter of a date counts its own.

        The template changed their text, and its output takes precedence.
        """
        return self._num_rewritten

    def decode(self, token_ids: Sequence[int]) -> str:
        """Spell *token_ids*, control tokens included."""
        return self._encoder.decode(token_ids)

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        """
        Render *messages* with the model's template, and tokenize them.

        Raises:
            TranscriptError: the template rejects these messages in this order.
        """
        return self._rendered(add_generation_prompt, *messages)

    def _render(
        self,
        add_generation_prompt: bool,  # noqa: FBT001 - as it is remembered
        *messages: Message,
    ) -> RenderedChat:
        shown = [self._shown(message) for message in messages]
        contents = [text for text in shown if text is not None]
        is_usual = len(contents) == len(shown)
        mark, edge = (MARK, EDGE) if is_usual else _unused_characters(messages)
        if not is_usual:
            contents = [self._escape(self._template.content(m), mark) for m in messages]
        full = self._write(messages, contents, mark, add_generation_prompt)
        if is_usual:
            joined = self._pieces.join(messages, full, add_generation_prompt=add_generation_prompt)
            if joined is not None:
                return joined
        parts = self._split(messages, contents, full, (mark, edge), add_generation_prompt)
        return RenderedChat(
            text=full.replace(mark, ""),
            token_ids=tuple(self._ids(parts, messages, mark)),
        )

    def _write_marked(
        self, messages: Sequence[Message], *, add_generation_prompt: bool
    ) -> tuple[str, list[str | int]]:
        """Render a transcript for `Pieces`, never one that contains the markers."""
        contents = [self._escape(self._template.content(m), MARK) for m in messages]
        full = self._write(messages, contents, MARK, add_generation_prompt)
        marks = (MARK, EDGE)
        return full, self._split(messages, contents, full, marks, add_generation_prompt)

    def _split(
        self,
        messages: Sequence[Message],
        contents: Sequence[str],
        full: str,
        marks: tuple[str, str],
        prompt: bool,  # noqa: FBT001 - passed on
    ) -> list[str | int]:
        """Split *full* around the answers whose generated ids are kept."""
        mark, edge = marks
        kept = [i for i, message in enumerate(messages) if self._kept(message)]
        parts: list[str | int] = [full]
        if kept:
            shown = list(contents)
            for i in kept:
                shown[i] = f"{edge}{i}{edge}"
            parts = splice(full, self._write(messages, shown, mark, prompt), contents, edge)
        for index, message in enumerate(messages):
            generated = message.generated
            if generated is not None and (
                index not in parts or self._kept(message) != generated.token_ids
            ):
                self._note_rewritten(generated)
        return parts

    def split_answer(self, text: str, *, is_generated: bool = False) -> tuple[str, str]:
        """Return the reasoning in a text of the model, and its answer; see `ThinkingCounter`."""
        return self._template.split(text, is_generated=is_generated)

    def forget(self) -> None:
        """
        Clear all caches of texts.

        Those of the counters of all dates included.
        """
        for counter in self._dated.counters():
            counter._forget()  # noqa: SLF001 - another one of this class

    def _forget(self) -> None:
        remembered = (self._counted, self._rendered, self._rewritten, self._spells, self._shown)
        for cache in remembered:
            cache.clear()
        self._pieces.forget()
        self._encoder.forget()

    def count(self, message: Message) -> int:
        """
        Return the number of tokens that *message* adds to a transcript.

        Exact for templates that write messages independently, in order.
        """
        return self._counted(message)

    def _count(self, message: Message) -> int:
        thinks = self._template.traits.thoughts and bool(self._template.thought(message))
        if thinks and not message.tool_calls:
            return self._count_answer(message)
        if self._shown(message) is not None and (piece := self._pieces.find(message)) is not None:
            return len(piece.token_ids)
        for before, after in _places(message):
            try:
                with_it = self._render(False, *before, message, *after)  # noqa: FBT003 - as it is remembered
                without = self._render(False, *before, *after)  # noqa: FBT003 - see above
            except TranscriptError:
                continue
            return max(len(with_it.token_ids) - len(without.token_ids), 0)
        mark, _ = _unused_characters([message])
        return len(self._encoder.encode(self._escape(message.text, mark).split(mark)))

    def _count_answer(self, message: Message) -> int:
        """Count an answer with reasoning as in a window: before another question."""
        # Two texts: a template may detect the last question by its content.
        users = [Message(role=Role.USER, parts=(TextPart(text=text),)) for text in "uv"]
        with_it, without = [users[0], message, users[1]], users
        try:
            sizes = [
                len(self._render(False, *messages).token_ids)  # noqa: FBT003 - as it is remembered
                for messages in (with_it, without)
            ]
        except TranscriptError:
            return len(self._encoder.encode([self._template.content(message)]))
        return max(sizes[0] - sizes[1], 0)

    def turn_end_ids(self) -> frozenset[int]:
        """Return the control token that ends an answer in the template, if there is one."""
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

        return self._template.write(messages, contents, escape, add_generation_prompt=prompt)

    def _ids(self, parts: Sequence[str | int], messages: Sequence[Message], mark: str) -> list[int]:
        ids: list[int] = []
        for part in parts:
            if isinstance(part, str):
                runs = part.split(mark)
                # The empty segment marks the next one as continuing a text.
                ids += self._encoder.encode(["", *runs] if ids else runs)
            else:
                ids += self._kept(messages[part])
        return ids

    def _escape(self, text: str, mark: str) -> str:
        """
        Split each spelling of a control token with *mark*.

        One of a single character cannot be split, and is replaced by U+FFFD.
        """

        def cut(found: re.Match[str]) -> str:
            spelling = found[0]
            return spelling[0] + mark + spelling[1:] if len(spelling) > 1 else "\ufffd"

        return self._encoder.control_pattern.sub(cut, text)

    def _show(self, message: Message) -> str | None:
        """Return the text of *message* in the template; None if it contains a default marker."""
        if any(mark in text for text in _texts(message) for mark in (MARK, EDGE)):
            return None
        return self._escape(self._template.content(message), MARK)

    def _kept(self, message: Message) -> tuple[int, ...]:
        """Return the generated ids of *message* that can be spliced in; mostly all or none."""
        generated = message.generated
        if (
            generated is None
            or generated.fingerprint != self.fingerprint
            or message.tool_calls
            or not generated.token_ids
        ):
            return ()
        return self._spells(generated.token_ids, self._template.content(message))

    def _note_rewritten(self, generated: GeneratedIds) -> None:
        if generated.fingerprint == self.fingerprint:
            self._rewritten(generated)

    def _count_rewritten(self, _: GeneratedIds) -> None:
        self._num_rewritten += 1

    def _spelling(self, token_ids: tuple[int, ...], text: str) -> tuple[int, ...]:
        """
        Return *token_ids* if they decode to *text*.

        Those of reasoning before the answer are omitted where it is not part of the text.
        """
        if self._spells_text(token_ids, text):
            return token_ids
        if not text or not self._template.reads_thoughts:
            return ()
        starts = range(len(token_ids))
        start = bisect_left(starts, -len(text), key=lambda at: -len(self.decode(token_ids[at:])))
        answer = token_ids[start:]
        return answer if answer and self._spells_text(answer, text) else ()

    def _spells_text(self, token_ids: tuple[int, ...], text: str) -> bool:
        if not self.control_ids.isdisjoint(token_ids):
            return False
        # After a token, as in a prompt: some tokenizers drop the leading space of a text.
        anchor = sorted(self.control_ids)[:1]
        return self.decode([*anchor, *token_ids]) == self.decode(anchor) + text


class _Dated:
    """
    The counters of one model by the output of their template; an LRU cache of days.

    Args:
        plain: the counter without a given day.
    """

    def __init__(self, plain: ChatTokenizer) -> None:
        self._plain = plain
        self.begin_anew()
        renew_in_child(self)
        self._by_day: OrderedDict[date, ChatTokenizer] = OrderedDict()
        # A session may still use the counter of an evicted day.
        self._alive: WeakValueDictionary[tuple[str, ...], ChatTokenizer] = WeakValueDictionary()

    def begin_anew(self) -> None:
        """Replace the lock, which a fork may have inherited locked."""
        self._lock = threading.Lock()

    def at(self, day: date) -> ChatTokenizer:
        """Return the counter for *day*."""
        with self._lock:
            if (known := self._by_day.get(day)) is None:
                known = self._by_day[day] = self._make(day)
            self._by_day.move_to_end(day)
            while len(self._by_day) > _MAX_DAYS:
                self._by_day.popitem(last=False)
            return known

    def counters(self) -> list[ChatTokenizer]:
        """Return all counters that are still referenced."""
        with self._lock:
            return [self._plain, *self._alive.values()]

    def _make(self, day: date) -> ChatTokenizer:
        plain = self._plain._template  # noqa: SLF001 - these are made here
        template = plain.at_date(day)
        if template is plain:
            return self._plain
        counter = self._alive.get(template.opening)
        if counter is None:
            counter = self._alive[template.opening] = self._plain._with_template(template)  # noqa: SLF001
        return counter


def _unused_characters(messages: Sequence[Message]) -> tuple[str, str]:
    """Return two private-use characters that occur nowhere in *messages*."""
    shown = [text for message in messages for text in _texts(message)]
    used = set().union(*shown)
    free = [letter for letter in map(chr, chain(*_PRIVATE_USE)) if letter not in used][:2]
    if len(free) < 2:  # noqa: PLR2004 - two marks
        raise InvalidInputError(
            "the messages use every private-use character there is, and two of them are needed "
            "to mark control tokens: leave some out"
        )
    return free[0], free[1]


def _texts(message: Message) -> Iterator[str]:
    """Return all texts of *message* that a template may show."""
    yield from (message.text, message.name or "", message.tool_call_id or "")
    yield from (part.text for part in message.parts if isinstance(part, ReasoningPart))
    for call in message.tool_calls:
        yield f"{call.id}{call.name}"
        yield from spellings(call)


def _places(message: Message) -> Iterator[tuple[Sequence[Message], Sequence[Message]]]:
    """Return minimal transcripts that end with *message*, as messages before and after the cut."""
    if message.role is not Role.SYSTEM:
        yield neighbours(message)
        return
    user = Message(role=Role.USER, parts=(TextPart(text="u"),))
    yield [Message(role=Role.SYSTEM, parts=(TextPart(text="s"),))], [user]
    yield [], [user]


def _fingerprint(tokenizer: Any, template: str) -> str:
    hasher = hashlib.sha256(f"{_VERSION}:{len(template)}:{template}".encode())
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        hasher.update(backend.to_str().encode())
    else:
        hasher.update(repr(sorted(tokenizer.get_vocab().items())).encode())
    return hasher.hexdigest()[:32]
