"""Placeholders of ``data:`` URLs in prompts: a text model cannot read the bytes."""

from collections.abc import Iterable
from dataclasses import replace

from agentmem.types import StoredMessage, TextPart, Turn
from agentmem.types.data_urls import without_data


def with_stand_ins(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """
    Return *turns* with a placeholder for each ``data:`` URL in a message's texts.

    Else an image that a tool returns as text would fill the window, unlike an image part.
    """
    return tuple(_of_turn(turn) for turn in turns)


def _of_turn(turn: Turn) -> Turn:
    messages = tuple(_of_message(stored) for stored in turn.messages)
    is_same = all(new is old for new, old in zip(messages, turn.messages, strict=True))
    return turn if is_same else replace(turn, messages=messages)


def _of_message(stored: StoredMessage) -> StoredMessage:
    message = stored.message
    texts = [part.text for part in message.parts if isinstance(part, TextPart)]
    if all(without_data(text) == text for text in texts):
        return stored
    parts = tuple(
        TextPart(text=without_data(part.text)) if isinstance(part, TextPart) else part
        for part in message.parts
    )
    # The generated ids are those of the original text, which has changed.
    return replace(stored, message=replace(message, parts=parts, generated=None))
