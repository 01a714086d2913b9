"""
A transcript put together from pieces, one for each message, that are made once.

Most templates write one message after the other. That this one does so is not believed but
compared, each time: the pieces must spell exactly what the template has made of the whole
transcript, or they are not used. Their ids may then stand one after the other, since the encoder
splits a text at its control tokens and encodes what lies between by itself: where a control token
stands on one side of a seam, and none reaches over it, the ids of a text are those of its two
sides. That is looked at for each seam.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, takewhile
from typing import Protocol

from agentmem.errors import TranscriptError
from agentmem.inference.chat.encoder import PromptEncoder
from agentmem.inference.chat.memoize import Remembered
from agentmem.protocols import RenderedChat
from agentmem.types import Message, Role, TextPart, ToolCall

MARK, EDGE = "\ue000", "\ue001"
"""
What cuts the spelling of a control token in two, and what stands around the number of a message.

Messages in which one of the two occurs have no piece.
"""

_MAX_REMEMBERED = 8192


class Write(Protocol):
    """Writes a transcript, marked, and splits it around the ids that are kept as generated."""

    def __call__(
        self, messages: Sequence[Message], *, add_generation_prompt: bool
    ) -> tuple[str, Sequence[str | int]]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """What one message adds to a transcript; *opens* and *closes* with a control token or not."""

    text: str
    token_ids: tuple[int, ...]
    opens: bool
    closes: bool


class Pieces:
    """
    Makes the pieces of one model's template, and joins them.

    Args:
        encoder: of the model; one that does not split exactly makes no pieces.
        write: the model's template.
        kept: the ids of a message that are kept as generated.
    """

    def __init__(
        self, encoder: PromptEncoder, write: Write, kept: Callable[[Message], tuple[int, ...]]
    ) -> None:
        self._encoder = encoder
        self._write = write
        self._kept = kept
        self._pattern: re.Pattern[str] = encoder.control_pattern
        self._reach = max((len(spelling) for spelling in encoder.control_spellings), default=1)
        self._first = Remembered(self._make_first, _MAX_REMEMBERED)
        self._next = Remembered(self._make_next, _MAX_REMEMBERED)
        self._neighbours = Remembered(self._write_neighbours, _MAX_REMEMBERED)
        self._fit = Remembered(self._do_fit, _MAX_REMEMBERED)
        self._prompt = Remembered(self._make_prompt, 1)
        self._around = Remembered(self._plain, _MAX_REMEMBERED)

    def forget(self) -> None:
        """Drop every text that is remembered to save work."""
        for remembered in (self._first, self._next, self._neighbours, self._fit, self._around):
            remembered.clear()

    def find(self, message: Message) -> Piece | None:
        """Return what *message* adds to a transcript that it is appended to, if it has a piece."""
        return self._next(message, None) if self._encoder.is_split else None

    def join(
        self, messages: Sequence[Message], full: str, *, add_generation_prompt: bool
    ) -> RenderedChat | None:
        """
        Return the ids of *full*, the marked transcript of *messages*, if their pieces spell it.

        None if they do not, or do not fit together.
        """
        if not messages or not self._encoder.is_split:
            return None
        pieces = self._pieces(messages)
        if pieces is None:
            return None
        whole = list(pieces)
        if add_generation_prompt:
            if (prompt := self._prompt()) is None:
                return None
            whole.append(prompt)
        if "".join([piece.text for piece in whole]) != full:
            return None
        solid = [piece for piece in whole if piece.text]
        if not all(self._fit(left, right) for left, right in pairwise(solid)):
            return None
        return RenderedChat(
            text=full.replace(MARK, ""),
            token_ids=tuple(chain.from_iterable([piece.token_ids for piece in whole])),
            ends=tuple(accumulate(len(piece.token_ids) for piece in pieces)),
        )

    def _pieces(self, messages: Sequence[Message]) -> list[Piece] | None:
        """Return the piece of each message, None if one has none."""
        callers: dict[str, Message] = {}
        pieces: list[Piece] = []
        for index, message in enumerate(messages):
            caller = callers.get(message.tool_call_id or "")
            piece = self._next(message, caller) if index else self._first(message)
            if piece is None:
                return None
            pieces.append(piece)
            for call in message.tool_calls:
                callers[call.id] = message
        return pieces

    def _make_first(self, message: Message) -> Piece | None:
        try:
            full, parts = self._write([message], add_generation_prompt=False)
        except TranscriptError:
            return None
        return self._cut(message, full, parts, 0, len(full))

    def _make_next(self, message: Message, caller: Message | None) -> Piece | None:
        if message.role is Role.SYSTEM:
            return None
        before, after = neighbours(message, caller)
        try:
            full, parts = self._write([*before, message, *after], add_generation_prompt=False)
            start, rest = self._neighbours(before, after)
        except TranscriptError:
            return None
        begin, end = len(start), len(full) - len(rest)
        if begin > end or not (full.startswith(start) and full.endswith(rest)):
            return None
        piece = self._cut(message, full, parts, begin, end)
        around = [self._around(start), piece, self._around(rest)]
        solid = [one for one in around if one is not None and one.text]
        return piece if all(self._fit(left, right) for left, right in pairwise(solid)) else None

    def _write_neighbours(
        self, before: tuple[Message, ...], after: tuple[Message, ...]
    ) -> tuple[str, str]:
        """
        Return the text of *before*, and what *after* adds to it.

        Raises:
            TranscriptError: the template refuses them, or rewrites the one for the other.
        """
        start, _ = self._write(before, add_generation_prompt=False)
        if not after:
            return start, ""
        both, _ = self._write([*before, *after], add_generation_prompt=False)
        if not both.startswith(start):
            raise TranscriptError("the template does not write the messages in order")
        return start, both[len(start) :]

    def _make_prompt(self) -> Piece | None:
        """Make the piece that asks for an answer; None if the template takes no question alone."""
        user = (_say(Role.USER, "u"),)
        try:
            without, _ = self._neighbours(user, ())
            text, _ = self._write(user, add_generation_prompt=True)
        except TranscriptError:
            return None
        return self._plain(text[len(without) :]) if text.startswith(without) else None

    def _cut(
        self, message: Message, full: str, parts: Sequence[str | int], begin: int, end: int
    ) -> Piece | None:
        """Make a piece of what stands from *begin* to *end* in *full*."""
        text = full[begin:end]
        if len(parts) == 1:
            return self._plain(text)
        head, _, tail = parts
        assert isinstance(head, str) and isinstance(tail, str), "ids stand between two texts"  # noqa: PT018
        num_after = len(full) - end
        if len(head) < begin or len(tail) < num_after:
            return None
        ids = (
            *self._encoder.encode(head[begin:].split(MARK)),
            *self._kept(message),
            *self._encoder.encode(tail[: len(tail) - num_after].split(MARK)),
        )
        return self._piece(text, ids)

    def _plain(self, text: str) -> Piece:
        return self._piece(text, tuple(self._encoder.encode(text.split(MARK))))

    def _piece(self, text: str, ids: tuple[int, ...]) -> Piece:
        ends = [found.end() for found in self._pattern.finditer(text)]
        return Piece(
            text=text,
            token_ids=ids,
            opens=self._pattern.match(text) is not None,
            closes=ends[-1:] == [len(text)],
        )

    def _do_fit(self, left: Piece, right: Piece) -> bool:
        """Return whether both together have the ids of both one after the other."""
        if not (left.closes or right.opens):
            return False
        tail = left.text[-self._reach :]
        text, seam = tail + right.text[: self._reach], len(tail)
        found = (self._pattern.match(text, start) for start in range(seam))
        # None may begin in the one and end in the other.
        return not any(one is not None and one.end() > seam for one in found)


def neighbours(
    message: Message, caller: Message | None = None
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """
    Return a transcript, as what is before and after, in which *message* is in its place.

    The place of a result is behind those of the calls that stand before its own.
    """
    user, answer = _say(Role.USER, "u"), _say(Role.ASSISTANT, "a")
    if message.role is Role.USER:
        return (user, answer), ()
    if message.role is not Role.TOOL:
        return (user,), ()
    if caller is None:
        call = ToolCall(id=message.tool_call_id or "c", name=message.name or "f")
        caller = Message(role=Role.ASSISTANT, tool_calls=(call,))
    earlier = takewhile(lambda call: call.id != message.tool_call_id, caller.tool_calls)
    results = (
        Message(role=Role.TOOL, parts=answer.parts, tool_call_id=call.id) for call in earlier
    )
    # Some templates write the newest answer in another way than those before it.
    return (user, caller, *results), (answer,)


def _say(role: Role, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text=text),))
