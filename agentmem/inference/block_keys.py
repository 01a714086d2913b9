"""Names of blocks: equal names hold equal tokens behind equal prefixes. Plain Python."""

import hashlib
from array import array
from collections.abc import Iterator, Sequence


def root_key(*, model: str, salt: str) -> bytes:
    """Name what every block begins with: what else decides the numbers."""
    # Each extra is tagged by its kind and its length, so that no value can pose as another.
    hasher = hashlib.sha256()
    for kind, value in (("model", model), ("salt", salt)):
        data = value.encode("utf-8", "surrogatepass")
        hasher.update(f"{kind}:{len(data)}:".encode() + data)
    return hasher.digest()


def child_key(parent: bytes, tokens: tuple[int, ...]) -> bytes:
    """Name a block by the one before it and its own tokens."""
    return hashlib.sha256(parent + array("q", tokens).tobytes()).digest()


def whole_blocks(token_ids: Sequence[int], block_size: int) -> Iterator[tuple[int, ...]]:
    """Cut *token_ids* into blocks; what fills none is left out."""
    for end in range(block_size, len(token_ids) + 1, block_size):
        yield tuple(token_ids[end - block_size : end])
