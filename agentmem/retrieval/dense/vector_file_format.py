"""
The format of an index file: a header, arrays, and a checksum of both.

The checksum detects changed, missing and added bytes. Identity and validity of the content are
checked by `vector_files` and its caller.
"""

import hashlib
import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from agentmem.errors import DamagedIndexError
from agentmem.retrieval.rows.growable_array import Float32s, Int64s

_MAGIC: Final = b"agentmem vectors, format 1\n"
_LENGTH: Final = struct.Struct("<I")
_DIGEST_BYTES: Final = 32

ContentHashes = npt.NDArray[np.uint64]
Header = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedVectors:
    """
    The vectors of one search scope; a message has one for each of its chunks, next to each other.

    *content_hashes* are those of the messages when they were embedded.
    """

    message_ids: Int64s  # (n,)
    content_hashes: ContentHashes  # (n,)
    vectors: Float32s = field(repr=False)  # (n, dimension)


def encode(header: Header, saved: SavedVectors) -> Iterator[bytes | memoryview]:
    """Yield the file in parts, to avoid copying the vectors."""
    num, dimension = saved.vectors.shape
    text = json.dumps({**header, "num_vectors": num, "dimension": dimension}).encode()
    digest = hashlib.sha256()
    pieces: tuple[bytes | memoryview, ...] = (
        _MAGIC + _LENGTH.pack(len(text)) + text,
        _bytes_of(saved.message_ids, "<i8"),
        _bytes_of(saved.content_hashes, "<u8"),
        _bytes_of(saved.vectors, "<f4"),
    )
    for piece in pieces:
        digest.update(piece)
        yield piece
    yield digest.digest()


def decode(content: bytes) -> tuple[Header, SavedVectors]:
    """
    Decode a whole file; the arrays are views of *content*.

    Raises:
        DamagedIndexError: it is corrupt.
    """
    body = memoryview(content)[:-_DIGEST_BYTES]
    if hashlib.sha256(body).digest() != content[-_DIGEST_BYTES:]:
        raise DamagedIndexError("the checksum or the length does not match")
    header, start = decode_header(content)
    num, dimension = header["num_vectors"], header["dimension"]
    kinds = (("<i8", (num,)), ("<u8", (num,)), ("<f4", (num, dimension)))
    arrays: list[npt.NDArray[Any]] = []
    for kind, shape in kinds:
        array = np.frombuffer(body, kind, int(np.prod(shape)), start).reshape(shape)
        arrays.append(array)
        start += array.nbytes
    message_ids, content_hashes, vectors = arrays
    return header, SavedVectors(
        message_ids=message_ids, content_hashes=content_hashes, vectors=vectors
    )


def decode_header(content: bytes) -> tuple[Header, int]:
    """
    Decode the header of a possibly truncated file; return it and the offset of the arrays.

    Raises:
        DamagedIndexError: the header is missing or corrupt.
    """
    start = len(_MAGIC) + _LENGTH.size
    if not content.startswith(_MAGIC) or len(content) < start:
        raise DamagedIndexError("not a vector file of this format")
    (length,) = _LENGTH.unpack_from(content, len(_MAGIC))
    try:
        header = json.loads(content[start : start + length])
    except ValueError as error:
        raise DamagedIndexError("the header cannot be parsed") from error
    if not isinstance(header, dict):
        raise DamagedIndexError("the header cannot be parsed")
    return header, start + length


def _bytes_of(array: npt.NDArray[Any], kind: str) -> memoryview:
    return np.ascontiguousarray(array, kind).reshape(-1).view(np.uint8).data
