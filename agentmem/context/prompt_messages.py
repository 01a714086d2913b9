"""Messages in their displayed form, and units of them."""

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from agentmem.context.clip_calls import clip_calls, share_out
from agentmem.context.clip_text import CALL_MARKER, cut_middle, marker_of
from agentmem.types import (
    DisplayForm,
    Message,
    ReasoningPart,
    Role,
    Span,
    StoredMessage,
    TextPart,
    Tier,
    Turn,
)
from agentmem.types.passages import TextRange


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """A stored message, and its displayed form."""

    stored: StoredMessage
    message: Message
    form: DisplayForm = DisplayForm.FULL
    kept_chars: int | None = None
    anchor: int | None = None
    times: int = 1
    passages: tuple[TextRange, ...] = ()
    superseded_by: int | None = None

    @property
    def position(self) -> int:
        return self.stored.position

    @property
    def is_silent(self) -> bool:
        """Whether the prompt shows nothing of it: an answer may be blank."""
        message = self.message
        if not self.form.is_shown:
            return True
        return message.role is Role.ASSISTANT and not message.tool_calls and message.is_blank

    def span(self, tier: Tier) -> Span:
        """Return the span of this message in *tier*."""
        return Span(
            first=self.position,
            last=self.position,
            tier=tier,
            form=self.form,
            kept_chars=self.kept_chars,
            anchor=self.anchor,
            times=self.times,
            passages=self.passages,
            superseded_by=self.superseded_by,
        )


MessageGroup = tuple[PromptMessage, ...]
"""Messages that are kept or dropped together: an older turn, or a call with its results."""


def show(stored: StoredMessage) -> PromptMessage:
    """Show *stored* in full."""
    return PromptMessage(stored=stored, message=stored.message)


def show_clipped(stored: StoredMessage, kept: int) -> PromptMessage:
    """
    Show *kept* characters of *stored* around a marker that names where the rest is.

    They are divided among the text and the arguments of each call, each with a marker. Reasoning is
    removed first: with all characters kept, only that is removed.
    """
    message = stored.message
    if kept >= num_clippable(message):
        clipped = _with_text(message, message.text)
    elif not message.tool_calls:
        text = cut_middle(message.text, kept, marker_of(stored))
        clipped = _with_text(message, text)
    else:
        num_text, *most = share_out(_lengths(message), kept)
        marker = marker_of(stored)
        text = message.text
        if len(text) > num_text + len(marker):
            text = cut_middle(text, num_text, marker)
        calls = clip_calls(message.tool_calls, most, CALL_MARKER.format(position=stored.position))
        clipped = replace(_with_text(message, text), tool_calls=calls)
    return PromptMessage(stored=stored, message=clipped, form=DisplayForm.CLIPPED, kept_chars=kept)


def has_thought(message: Message) -> bool:
    """Whether *message* has a reasoning part."""
    return any(isinstance(part, ReasoningPart) for part in message.parts)


def num_clippable(message: Message) -> int:
    """Return the number of characters of *message* that can be clipped."""
    return sum(_lengths(message))


def _lengths(message: Message) -> list[int]:
    return [len(message.text), *(len(call.arguments) for call in message.tool_calls)]


def show_stub(stored: StoredMessage, line: str) -> PromptMessage:
    """Show *line* in place of *stored*."""
    return PromptMessage(
        stored=stored, message=_with_text(stored.message, line), form=DisplayForm.STUB
    )


def _with_text(message: Message, text: str) -> Message:
    parts = (TextPart(text=text),) if text else ()
    return replace(message, parts=parts, generated=None)


def split_turn(turn: Sequence[PromptMessage]) -> tuple[list[MessageGroup], MessageGroup]:
    """
    Split the current turn into finished rounds, oldest first, and its core.

    A round is an assistant message with the results of its calls, and all messages before the last
    of them. The core is never dropped: the user's message, and the last round with its open calls
    and latest results.
    """
    begins = 1 if turn and turn[0].message.role is Role.USER else 0
    rounds: list[list[PromptMessage]] = []
    waiting: set[str] = set()
    for shown in turn[begins:]:
        message = shown.message
        goes_on = message.role is Role.TOOL or shown.is_silent or bool(waiting)
        if not rounds or not goes_on:
            rounds.append([])
        rounds[-1].append(shown)
        waiting |= {call.id for call in message.tool_calls}
        waiting.discard(message.tool_call_id or "")
    core = (*turn[:begins], *(rounds.pop() if rounds else ()))
    return [tuple(one) for one in rounds], core


def shown_turns(
    turns: Iterable[Turn],
    layout: Sequence[Span],
    replaced: AbstractSet[int] = frozenset(),
    deleted: AbstractSet[int] = frozenset(),
) -> list[list[PromptMessage]]:
    """
    Show the messages of the previous layout, in the same form, and all new ones.

    Dropped messages do not return to the window, which would move back and forth. Messages at
    *replaced* or *deleted* positions are not shown; they are dropped with their turn.
    """
    silent = dict.fromkeys(deleted, DisplayForm.DELETED) | dict.fromkeys(
        replaced, DisplayForm.REPLACED
    )
    spans = {p: span for span in layout for p in _positions(span)}
    end = layout[-1].last if layout else 0
    return [
        [
            PromptMessage(stored=stored, message=stored.message, form=silent[stored.position])
            if stored.position in silent
            else _as_before(stored, spans.get(stored.position))
            for stored in turn.messages
            if stored.position > end or _is_in_window(spans.get(stored.position))
        ]
        for turn in turns
    ]


def _positions(span: Span) -> range:
    # Summaries and gaps cover long runs, whose messages are not looked up here.
    is_long = span.tier in (None, Tier.SUMMARY)
    return range(0) if is_long else range(span.first, span.last + 1)


def _is_in_window(span: Span | None) -> bool:
    return span is not None and span.tier in (Tier.RECENT, Tier.CURRENT)


def _as_before(stored: StoredMessage, span: Span | None) -> PromptMessage:
    if span is None or span.form is DisplayForm.FULL or not span.form.is_shown:
        return show(stored)
    if span.form is DisplayForm.CLIPPED:
        return show_clipped(stored, span.kept_chars or 0)
    return show_stub(stored, STUB_LINE.format(position=stored.position))


STUB_LINE = "[left out to save room; message {position} has it]"
"""The stub of a discarded message. One line for all, so that a stub of an earlier
prompt can be rendered again without calling the policy, which may have changed."""
