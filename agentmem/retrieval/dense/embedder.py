"""The protocol of an embedder: texts to vectors."""

from collections.abc import Sequence
from typing import Protocol

from agentmem.retrieval.rows.growable_array import Float32s


class Embedder(Protocol):
    """Embeds texts as vectors, similar ones with a high inner product. Thread-safe."""

    @property
    def fingerprint(self) -> str:
        """Identify all that vectors depend on; those of other fingerprints are not compared."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def reads_unspaced(self) -> bool:
        """Whether it supports non-Latin scripts too, with or without spaces."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Float32s:
        """Return the unit vectors of *texts*: (texts, dimension)."""
        ...

    def embed_query(self, text: str) -> Float32s:
        """Return the unit vector of a query: (dimension,)."""
        ...

    def split(self, text: str) -> Sequence[tuple[int, int]]:
        """
        Split *text* into chunks that can be embedded.

        Return the first and last character (both included) of each chunk, in order; chunks
        overlap and cover the whole text. A short text is one chunk.
        """
        ...
