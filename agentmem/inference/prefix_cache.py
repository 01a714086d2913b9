"""
From token ids to the KV blocks that already hold them. Plain Python.

Blocks form a tree: a block's key is a hash over its parent's key and its own tokens, and the
root's key is a hash over what else decides the numbers (model, salt). A block stays in the tree
at least as long as its children do, whichever way it is let go.
"""

import hashlib
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentmem.errors import OutOfBlocksError
from agentmem.inference.block_pool import BlockId, BlockPool


@dataclass(slots=True, eq=False)
class _Entry:
    """A published block. *tokens* and *parent* are compared on a hit, so a collision misses."""

    key: bytes
    parent: "_Entry | None"
    tokens: tuple[int, ...]
    block: BlockId
    root: bytes
    num_children: int = 0


class PrefixCache:
    """
    Finds, shares and evicts blocks by the tokens that they hold.

    It is one more holder of each published block. A block that nobody else holds can be
    evicted: least recently used first, and of one chain the tail before the head.
    """

    def __init__(self, pool: BlockPool, *, block_size: int, model: str = "") -> None:
        self._pool = pool
        self.block_size = block_size
        self._model = model
        self._entries: dict[bytes, _Entry] = {}
        self._by_block: dict[BlockId, _Entry] = {}
        # The entries that only the cache holds, least recently used first.
        self._idle: OrderedDict[BlockId, _Entry] = OrderedDict()

    @property
    def num_cached(self) -> int:
        """How many published blocks nobody uses at the moment."""
        return len(self._idle)

    @property
    def num_available(self) -> int:
        """How many blocks `allocate` could give."""
        return self._pool.num_free + self.num_cached

    @property
    def num_blocks(self) -> int:
        """How many blocks there are."""
        return self._pool.num_blocks

    def keys(self, token_ids: Sequence[int], *, salt: str = "") -> list[bytes]:
        """Name each whole block of *token_ids*: equal names, equal tokens and prefix and salt."""
        key, keys = self._root(salt), []
        for tokens in self._runs(token_ids):
            key = _child_key(key, tokens)
            keys.append(key)
        return keys

    def num_known(self, keys: Sequence[bytes]) -> int:
        """Tell how many blocks, from the first on, are published under those names."""
        return next((i for i, key in enumerate(keys) if key not in self._entries), len(keys))

    def hold(self, blocks: Sequence[BlockId]) -> Sequence[BlockId]:
        """Hold *blocks*, which somebody else holds, once more."""
        for block in blocks:
            self._pool.retain(block)
        return blocks

    def reset(self) -> None:
        """Forget everything, whoever holds it: all blocks are free."""
        self._pool.reset()
        for table in (self._entries, self._by_block, self._idle):
            table.clear()

    def match(self, token_ids: Sequence[int], *, salt: str = "") -> list[BlockId]:
        """
        Find the longest run of published blocks that begins *token_ids*, and hold them.

        At least one token is left over: the model must see one to say what follows.
        """
        blocks = []
        for entry in self._walk(token_ids[: max(len(token_ids) - 1, 0)], salt):
            self._pool.retain(entry.block)
            self._idle.pop(entry.block, None)
            blocks.append(entry.block)
        return blocks

    def allocate(self, count: int) -> list[BlockId]:
        """
        Take *count* blocks, evicting what is cached where too few are free.

        Raises:
            OutOfBlocksError: fewer than *count* are free or cached; nothing was evicted.
        """
        if count > self.num_available:
            raise OutOfBlocksError(
                needed=count, free=self.num_available, total=self._pool.num_blocks
            )
        self.evict(count - self._pool.num_free)
        return self._pool.allocate(count)

    def insert(
        self, token_ids: Sequence[int], blocks: Sequence[BlockId], *, salt: str = ""
    ) -> list[BlockId]:
        """
        Publish *blocks*, which the caller holds and which the model has filled.

        Returns the blocks that hold the tokens now. Where the cache had a block with the same
        tokens, the caller's own is released and the cached one is held in its place.

        Args:
            token_ids: what the blocks hold from position 0 on; whole blocks only.
            blocks: one block for each run of ``block_size`` tokens.
            salt: only requests with the same salt will find them.
        """
        assert len(token_ids) == len(blocks) * self.block_size, "only whole blocks are published"
        held: list[BlockId] = []
        parent: _Entry | None = None
        root = key = self._root(salt)
        for block, tokens in zip(blocks, self._runs(token_ids), strict=True):
            key = _child_key(key, tokens)
            known = self._entries.get(key)
            if known is None:
                known = self._publish(_Entry(key, parent, tokens, block, root))
            elif known.tokens != tokens or known.parent is not parent:
                # A collision: the rest stays private, as if it had not been published.
                return held + list(blocks[len(held) :])
            if known.block != block:
                self._pool.retain(known.block)
                self._idle.pop(known.block, None)
                self.release([block])
            held.append(known.block)
            parent = known
        return held

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Let go of the *blocks* of one sequence, in its order; published ones stay cached."""
        for block in reversed(blocks):
            entry = self._by_block.get(block)
            if entry is not None and self._pool.num_holders(block) == 2:  # noqa: PLR2004 - cache, caller
                self._idle[block] = entry
            self._pool.release([block])

    def evict(self, count: int) -> int:
        """Free up to *count* blocks that only the cache holds; tell how many it were."""
        num_evicted = 0
        while num_evicted < count and self._idle:
            self._remove(next(iter(self._idle.values())))
            num_evicted += 1
        return num_evicted

    def discard(self, token_ids: Sequence[int], *, keep: int = 0, salt: str = "") -> int:
        """
        Free the blocks of *token_ids* behind the first *keep* tokens; tell how many it were.

        A block stays if somebody uses it or if another cached block continues it.
        """
        first = -(-keep // self.block_size)
        chain = list(self._walk(token_ids, salt))
        num_discarded = 0
        for entry in reversed(chain[first:]):
            if entry.num_children or entry.block not in self._idle:
                break
            self._remove(entry)
            num_discarded += 1
        return num_discarded

    def forget(self, *, salt: str) -> list[BlockId]:
        """
        Drop everything under *salt*, and give the blocks that are free now.

        A block that a running sequence holds can no longer be found, and is free when that ends.
        """
        root = self._root(salt)
        freed = []
        # Newest first: a block is younger than the one that it continues.
        for entry in reversed([e for e in self._entries.values() if e.root == root]):
            if self._idle.pop(entry.block, None) is not None:
                freed.append(entry.block)
            del self._entries[entry.key], self._by_block[entry.block]
            if entry.parent is not None:
                entry.parent.num_children -= 1
            self._pool.release([entry.block])
        return freed

    def check(self, tables: Iterable[Sequence[BlockId]] | None = None) -> None:
        """
        Assert that the tree, the idle list and the pool agree. For tests and idle loops.

        Args:
            tables: the blocks of each sequence that runs; if given, nobody else may hold any.
        """
        self._pool.check()
        if tables is not None:
            holders = Counter(block for table in tables for block in table)
            holders.update(list(self._by_block))
            self._pool.check_holders(holders)
        assert len(self._entries) == len(self._by_block), "an entry has no block"
        num_children: dict[bytes, int] = {}
        for key, entry in self._entries.items():
            assert entry.key == key, "an entry is filed under another key"
            assert self._by_block[entry.block] is entry, "two entries share a block"
            num_holders = self._pool.num_holders(entry.block)
            assert num_holders >= 1, "a published block is free"
            assert (num_holders == 1) == (entry.block in self._idle), "the idle list is wrong"
            if entry.parent is not None:
                assert self._entries.get(entry.parent.key) is entry.parent, "an orphan entry"
                num_children[entry.parent.key] = num_children.get(entry.parent.key, 0) + 1
        for key, entry in self._entries.items():
            assert entry.num_children == num_children.get(key, 0), "children miscounted"

    def _publish(self, entry: _Entry) -> _Entry:
        self._entries[entry.key] = entry
        self._by_block[entry.block] = entry
        if entry.parent is not None:
            entry.parent.num_children += 1
        self._pool.retain(entry.block)
        return entry

    def _remove(self, entry: _Entry) -> None:
        assert entry.num_children == 0, "a head would die before its tail"
        del self._entries[entry.key], self._by_block[entry.block], self._idle[entry.block]
        if entry.parent is not None:
            entry.parent.num_children -= 1
        self._pool.release([entry.block])

    def _walk(self, token_ids: Sequence[int], salt: str) -> Iterator[_Entry]:
        parent: _Entry | None = None
        key = self._root(salt)
        for tokens in self._runs(token_ids):
            key = _child_key(key, tokens)
            entry = self._entries.get(key)
            if entry is None or entry.tokens != tokens or entry.parent is not parent:
                return
            yield entry
            parent = entry

    def _runs(self, token_ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
        for end in range(self.block_size, len(token_ids) + 1, self.block_size):
            yield tuple(token_ids[end - self.block_size : end])

    def _root(self, salt: str) -> bytes:
        # Each extra is tagged by its kind and its length, so that no value can pose as another.
        hasher = hashlib.sha256()
        for kind, value in (("model", self._model), ("salt", salt)):
            data = value.encode("utf-8", "surrogatepass")
            hasher.update(f"{kind}:{len(data)}:".encode() + data)
        return hasher.digest()


def _child_key(parent: bytes, tokens: tuple[int, ...]) -> bytes:
    return hashlib.sha256(parent + array("q", tokens).tobytes()).digest()
