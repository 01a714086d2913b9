"""Embeds messages: which texts, in which portions, and what is stored of it."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from agentmem.errors import VectorError
from agentmem.protocols import Embedding
from agentmem.retrieval.catalog import entry_of
from agentmem.retrieval.columns import Float32s
from agentmem.retrieval.embedding import Embedder
from agentmem.retrieval.marks import NO_SESSION
from agentmem.retrieval.spans import TextSpan, spans_of
from agentmem.retrieval.vector import as_unit
from agentmem.types import MessageId, StoredMessage

_PORTION: Final = 32
"""Texts that are embedded at once: so long at most a close has to wait."""


def embed_messages(
    messages: Sequence[StoredMessage], embedder: Embedder, between: Callable[[], None]
) -> list[Embedding]:
    """
    Give the vectors of *messages*; an empty one for a message in which nothing is to be found.

    *between* is called before each portion, and may raise to end the work.

    Raises:
        VectorError: the embedder gave something that is no vector.
    """
    result: list[Embedding] = []
    spans: list[tuple[MessageId, TextSpan]] = []
    for stored in messages:
        entry = entry_of(stored, NO_SESSION, with_line=False)
        if entry is None:
            result.append(Embedding(message_id=stored.id, first=0, last=0, vector=b""))
        else:
            pieces = [(stored.id, span) for span in spans_of(entry, embedder)]
            if not pieces:
                raise VectorError(
                    f"the embedder cut a text of {len(entry.text)} characters into no piece at all"
                )
            spans += pieces
    for start in range(0, len(spans), _PORTION):
        between()
        portion = spans[start : start + _PORTION]
        vectors = _embed([span.text for _, span in portion], embedder)
        result += [
            Embedding(
                message_id=message_id, first=span.first, last=span.last, vector=vector.tobytes()
            )
            for (message_id, span), vector in zip(portion, vectors, strict=True)
        ]
    return result


def _embed(texts: Sequence[str], embedder: Embedder) -> Float32s:
    vectors = as_unit(embedder.embed_passages(texts), embedder.dimension)
    if len(vectors) != len(texts):
        raise VectorError(f"the embedder gave {len(vectors)} vectors for {len(texts)} texts")
    return vectors.astype(np.dtype("<f4"), copy=False)
