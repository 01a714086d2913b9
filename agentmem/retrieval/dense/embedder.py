"""The protocol of an embedder: texts to vectors."""

from collections.abc import Sequence
from typing import Protocol

from agentmem.retrieval.rows.growable_array import Float32s


class Embedder(Protocol):
    """Turns texts into vectors, close ones with a high inner product. Threads may share it."""

    @property
    def fingerprint(self) -> str:
        """Name everything that a vector depends on; vectors of another one are not compared."""
        ...

    @property
    def dimension(self) -> int: ...

    @property
    def reads_unspaced(self) -> bool:
        """Whether it was made for other scripts than Latin too, with or without spaces."""
        ...

    def embed_passages(self, texts: Sequence[str]) -> Float32s:
        """Return one vector of length 1 for each of *texts*: (texts, dimension)."""
        ...

    def embed_query(self, text: str) -> Float32s:
        """Return the vector of a query, of length 1: (dimension,)."""
        ...

    def split(self, text: str) -> Sequence[tuple[int, int]]:
        """
        Cut *text* where it is longer than can be embedded at once.

        Gives the first and last character (both included) of each piece, in order; pieces
        overlap and cover the whole text. One piece where it is short enough.
        """
        ...
