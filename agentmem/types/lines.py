"""Deduplication of messages."""

from agentmem.types.messages import ImagePart, Message
from agentmem.types.words import same_line


def line_of(message: Message) -> str:
    """
    Return the deduplication key of a message.

    It has the speaker, the text without regard to white space and case, and the images; reasoning
    does not count.
    """
    images = (part.url for part in message.parts if isinstance(part, ImagePart))
    # NUL is a safe separator: no text has one.
    return "\0".join((message.role, message.name or "", same_line(message.memory_text), *images))
