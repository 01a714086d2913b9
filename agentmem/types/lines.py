"""Which messages say the same, so that one of them may stand for all."""

from agentmem.types.messages import ImagePart, Message
from agentmem.types.words import same_line


def line_of(message: Message) -> str:
    """
    Return what messages have in common that are copies of each other.

    The speaker, the words but for white space and case, and the images; thoughts do not count.
    """
    images = (part.url for part in message.parts if isinstance(part, ImagePart))
    # No text has a NUL.
    return "\0".join((message.role, message.name or "", same_line(message.memory_text), *images))
