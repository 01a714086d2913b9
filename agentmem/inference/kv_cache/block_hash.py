"""Block hashes of tokens and prefix, and published blocks. Plain Python."""

import hashlib
from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from agentmem.inference.kv_cache.block_pool import BlockId, BlockPool


def root_key(*, model: str, salt: str) -> bytes:
    """Return the root hash: over everything besides tokens that determines keys and values."""
    # Each extra is prefixed with its type and length, so that no two encodings collide.
    hasher = hashlib.sha256()
    for kind, value in (("model", model), ("salt", salt)):
        data = value.encode("utf-8", "surrogatepass")
        hasher.update(f"{kind}:{len(data)}:".encode() + data)
    return hasher.digest()


def child_key(parent: bytes, tokens: tuple[int, ...]) -> bytes:
    """Return the hash of a block: over its parent's hash and its own tokens."""
    return hashlib.sha256(parent + array("q", tokens).tobytes()).digest()


def whole_blocks(token_ids: Sequence[int], block_size: int) -> Iterator[tuple[int, ...]]:
    """Split *token_ids* into whole blocks; the remainder is omitted."""
    for end in range(block_size, len(token_ids) + 1, block_size):
        yield tuple(token_ids[end - block_size : end])


@dataclass(slots=True, eq=False)
class Entry:
    """A published block. *tokens* and *parent* are compared on a hit: a hash collision misses."""

    key: bytes
    parent: "Entry | None"
    tokens: tuple[int, ...]
    block: BlockId
    root: bytes
    cache_priority: int = 0
    """Eviction priority: lower levels are evicted first."""

    children: "dict[bytes, Entry]" = field(default_factory=dict)

    @property
    def num_children(self) -> int:
        return len(self.children)


def check_tree(
    entries: Mapping[bytes, Entry],
    by_block: Mapping[BlockId, Entry],
    idle: Container[BlockId],
    pool: BlockPool,
) -> None:
    """Assert that published blocks form a tree, and that the idle ones are not in use."""
    assert len(entries) == len(by_block), "an entry has no block"
    num_children: dict[bytes, int] = {}
    for key, entry in entries.items():
        assert entry.key == key, "an entry is filed under another key"
        assert by_block[entry.block] is entry, "two entries share a block"
        ref_count = pool.ref_count(entry.block)
        assert ref_count >= 1, "a published block is free"
        assert (ref_count == 1) == (entry.block in idle), "the idle list is wrong"
        if entry.parent is not None:
            assert entries.get(entry.parent.key) is entry.parent, "an orphan entry"
            assert entry.parent.cache_priority >= entry.cache_priority, (
                "a tail would outlive its head"
            )
            num_children[entry.parent.key] = num_children.get(entry.parent.key, 0) + 1
    for key, entry in entries.items():
        assert entry.num_children == num_children.get(key, 0), "children miscounted"
