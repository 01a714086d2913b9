"""Which texts are embedded for a message."""

from dataclasses import dataclass, field

from agentmem.retrieval.catalog import Entry
from agentmem.retrieval.embedding import Embedder


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSpan:
    """The characters *first* to *last* (both included) of an entry, and what is embedded."""

    first: int
    last: int
    text: str = field(repr=False)


def spans_of(entry: Entry, embedder: Embedder) -> tuple[TextSpan, ...]:
    """
    Give what is to be embedded of *entry*: one span, or several that overlap if it is long.

    Each says who speaks. A message's score is that of its best span.
    """
    return tuple(
        TextSpan(first=first, last=last, text=f"{entry.speaker}: {entry.text[first : last + 1]}")
        for first, last in embedder.split(entry.text)
    )
