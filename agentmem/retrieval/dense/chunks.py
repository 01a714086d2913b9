"""Chunks of a message, to embed."""

from dataclasses import dataclass, field

from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.rows.message_table import IndexedMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class TextChunk:
    """The characters *first* to *last* (both included) of an entry, and the text to embed."""

    first: int
    last: int
    text: str = field(repr=False)


def chunks_of(entry: IndexedMessage, embedder: Embedder) -> tuple[TextChunk, ...]:
    """
    Return the texts to embed for *entry*: one chunk, or overlapping ones if it is long.

    Each begins with the speaker. A message's score is that of its best chunk.
    """
    return tuple(
        TextChunk(first=first, last=last, text=f"{entry.speaker}: {entry.text[first : last + 1]}")
        for first, last in embedder.split(entry.text)
    )
