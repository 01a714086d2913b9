"""What prompts show in place of bytes: the store keeps them, and a text model cannot read them."""

from collections.abc import Iterable
from dataclasses import replace

from agentmem.types import StoredMessage, TextPart, Turn
from agentmem.types.data_urls import without_data


def with_stand_ins(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """
    Return *turns* with a short text for each ``data:`` URL in a message's texts.

    A picture that a tool returns as text would else take the window, as one in a part of its own
    does not.
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
    # Ids spell the text that was generated, which is another one now.
    return replace(stored, message=replace(message, parts=parts, generated=None))
