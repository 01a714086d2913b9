"""
Transcripts assembled from cached segments, one per message.

Most templates write messages independently, in order. This is verified each time: segments are
used only if they spell exactly the template's output for the whole transcript. Their ids can then
be concatenated, since the encoder splits a text at its control tokens and encodes the parts
separately: where a control token is on one side of a boundary, and none spans it, the ids of a
text are those of its two sides. This is checked for each boundary.
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
The separator that splits the spelling of a control token, and the delimiter of a message index.

Messages that contain one of the two have no segment.
"""

_MAX_REMEMBERED = 8192


class Write(Protocol):
    """Renders a transcript with markers, and splits it around generated ids that are kept."""

    def __call__(
        self, messages: Sequence[Message], *, add_generation_prompt: bool
    ) -> tuple[str, Sequence[str | int]]: ...


@dataclass(frozen=True, slots=True)
class Piece:
    """One message's part of a transcript; whether it *opens* and *closes* with a control token."""

    text: str
    token_ids: tuple[int, ...]
    opens: bool
    closes: bool


class Pieces:
    """
    Renders the segments of one model's template, and joins them.

    Args:
        encoder: of the model; one that does not split exactly has no segments.
        write: renders with the model's template.
        kept: returns the generated ids of a message that are kept.
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
        """Clear the cache."""
        for remembered in (self._first, self._next, self._neighbours, self._fit, self._around):
            remembered.clear()

    def find(self, message: Message) -> Piece | None:
        """Return the segment of *message* when it is appended to a transcript, if it has one."""
        return self._next(message, None) if self._encoder.is_split else None

    def join(
        self, messages: Sequence[Message], full: str, *, add_generation_prompt: bool
    ) -> RenderedChat | None:
        """
        Return the ids of *full*, the marked transcript of *messages*, if their segments spell it.

        None if they do not, or cannot be concatenated.
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
        """Return the segment of each message; None if one has none."""
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
        Return the text of *before*, and the text that *after* adds to it.

        Raises:
            TranscriptError: the template rejects them, or *after* changes the text of *before*.
        """
        start, _ = self._write(before, add_generation_prompt=False)
        if not after:
            return start, ""
        both, _ = self._write([*before, *after], add_generation_prompt=False)
        if not both.startswith(start):
            raise TranscriptError("the template does not write the messages in order")
        return start, both[len(start) :]

    def _make_prompt(self) -> Piece | None:
        """Return the segment of the generation prompt; None if a lone question is rejected."""
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
        """Return the segment from *begin* to *end* of *full*."""
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
        """Return whether the ids of both together are the concatenated ids."""
        if not (left.closes or right.opens):
            return False
        tail = left.text[-self._reach :]
        text, seam = tail + right.text[: self._reach], len(tail)
        found = (self._pattern.match(text, start) for start in range(seam))
        # No control token may span the boundary.
        return not any(one is not None and one.end() > seam for one in found)


def neighbours(
    message: Message, caller: Message | None = None
) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """
    Return a minimal transcript that ends with *message*, as the messages before and after the cut.

    The position of a result is after the results of the preceding calls.
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
    # Some templates render the newest answer differently from earlier ones.
    return (user, caller, *results), (answer,)


def _say(role: Role, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text=text),))
