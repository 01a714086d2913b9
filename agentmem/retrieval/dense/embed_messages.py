"""Embeds messages: texts, batches, and the stored vectors."""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from agentmem.errors import VectorError
from agentmem.protocols import Embedding
from agentmem.retrieval.dense.chunks import TextChunk, chunks_of
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.vector_index import as_unit
from agentmem.retrieval.rows.content_hash import NO_SESSION
from agentmem.retrieval.rows.growable_array import Float32s
from agentmem.retrieval.rows.message_table import indexed_message
from agentmem.types import MessageId, StoredMessage

_PORTION: Final = 32
"""Texts per batch, which bounds the wait of a close."""


def embed_messages(
    messages: Sequence[StoredMessage], embedder: Embedder, between: Callable[[], None]
) -> list[Embedding]:
    """
    Return the vectors of *messages*; an empty one for a message without searchable text.

    *between* is called before each batch, and may raise to stop.

    Raises:
        VectorError: the embedder returned something other than vectors.
    """
    result: list[Embedding] = []
    chunks: list[tuple[MessageId, TextChunk]] = []
    for stored in messages:
        entry = indexed_message(stored, NO_SESSION, with_line=False)
        if entry is None:
            result.append(Embedding(message_id=stored.id, first=0, last=0, vector=b""))
        else:
            pieces = [(stored.id, chunk) for chunk in chunks_of(entry, embedder)]
            if not pieces:
                raise VectorError(
                    f"the embedder split a text of {len(entry.text)} characters into no chunks"
                )
            chunks += pieces
    for start in range(0, len(chunks), _PORTION):
        between()
        portion = chunks[start : start + _PORTION]
        vectors = _embed([chunk.text for _, chunk in portion], embedder)
        result += [
            Embedding(
                message_id=message_id, first=chunk.first, last=chunk.last, vector=vector.tobytes()
            )
            for (message_id, chunk), vector in zip(portion, vectors, strict=True)
        ]
    return result


def _embed(texts: Sequence[str], embedder: Embedder) -> Float32s:
    vectors = as_unit(embedder.embed_passages(texts), embedder.dimension)
    if len(vectors) != len(texts):
        raise VectorError(f"the embedder returned {len(vectors)} vectors for {len(texts)} texts")
    return vectors.astype(np.dtype("<f4"), copy=False)
