"""
The prefix cache: from token ids to KV blocks that already hold them. Plain Python.

Blocks form a tree: a block hash is over its parent's hash and its own tokens, and the root hash is
over everything else that determines keys and values (model, salt). A block stays in the tree at
least as long as its children, however it is evicted.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, islice

from agentmem.errors import OutOfBlocksError
from agentmem.inference.kv_cache.block_hash import (
    Entry,
    check_tree,
    child_key,
    root_key,
    whole_blocks,
)
from agentmem.inference.kv_cache.block_pool import BlockId, BlockPool
from agentmem.inference.kv_cache.eviction_queue import EvictionQueue
from agentmem.types import common_prefix

_MAX_SIBLINGS = 64


class PrefixCache:
    """
    Matches, shares and evicts blocks by their tokens.

    It is one more holder of each published block. A block that only the cache holds can be
    evicted: least recently used first, and of one chain the tail before the head.
    """

    def __init__(self, pool: BlockPool, *, block_size: int, model: str = "") -> None:
        self._pool = pool
        self.block_size = block_size
        self._model = model
        self._entries: dict[bytes, Entry] = {}
        self._by_block: dict[BlockId, Entry] = {}
        self._heads: dict[bytes, dict[bytes, Entry]] = {}
        self._idle = EvictionQueue()
        self.num_evicted = 0
        """Blocks that were freed to make room, since the cache was made."""

    @property
    def num_cached(self) -> int:
        """Number of published blocks that are not in use."""
        return len(self._idle)

    @property
    def num_available(self) -> int:
        """Number of blocks that `allocate` can return."""
        return self._pool.num_free + self.num_cached

    @property
    def num_blocks(self) -> int:
        """Number of blocks of the pool."""
        return self._pool.num_blocks

    def keys(self, token_ids: Sequence[int], *, salt: str = "") -> list[bytes]:
        """Return the hash of each whole block of *token_ids*, over tokens, prefix and salt."""
        root = self._root(salt)
        return list(accumulate(self._runs(token_ids), child_key, initial=root))[1:]

    def num_known(self, keys: Sequence[bytes]) -> int:
        """Return the number of leading blocks that are published under these hashes."""
        return next((i for i, key in enumerate(keys) if key not in self._entries), len(keys))

    def hold(self, blocks: Sequence[BlockId]) -> Sequence[BlockId]:
        """Hold *blocks*, which another holder has, once more."""
        for block in blocks:
            self._pool.acquire(block)
        return blocks

    def reset(self) -> None:
        """Clear the cache and free all blocks, whatever their reference counts."""
        self._pool.reset()
        for table in (self._entries, self._by_block, self._heads, self._idle):
            table.clear()

    def match(
        self, token_ids: Sequence[int], *, salt: str = "", cache_priority: int = 0
    ) -> list[BlockId]:
        """
        Find the longest run of published blocks that begins *token_ids*, and hold them.

        At least one token is left to compute, for the logits of the next one. The blocks get
        *cache_priority*: those of lower priority are evicted first.
        """
        blocks = []
        for entry in self._walk(token_ids[: max(len(token_ids) - 1, 0)], salt):
            self._hold(entry, cache_priority)
            blocks.append(entry.block)
        return blocks

    def match_part(
        self, token_ids: Sequence[int], blocks: Sequence[BlockId], *, salt: str = ""
    ) -> tuple[BlockId, int] | None:
        """
        Find the child of *blocks* with the longest match to *token_ids*, and acquire it.

        Return it and the number of matching tokens. It must be copied, not shared.

        Args:
            token_ids: a prompt; its last token is left to compute, as by `match`.
            blocks: the result of `match`.
            salt: as for `match`.
        """
        rest = tuple(token_ids[len(blocks) * self.block_size : -1][: self.block_size])
        siblings = (
            self._by_block[blocks[-1]].children if blocks else self._heads.get(self._root(salt), {})
        )
        best, longest = None, 0
        # Newest first, and only some: a popular prefix may have thousands of children.
        for entry in islice(reversed(siblings.values()), _MAX_SIBLINGS):
            num = common_prefix(entry.tokens, rest)
            if num > longest:
                best, longest = entry, num
        if best is None:
            return None
        self._hold(best, best.cache_priority)
        return best.block, longest

    def allocate(self, count: int) -> list[BlockId]:
        """
        Allocate *count* blocks, evicting cached ones if too few are free.

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
        self,
        token_ids: Sequence[int],
        blocks: Sequence[BlockId],
        *,
        salt: str = "",
        cache_priority: int = 0,
    ) -> list[BlockId]:
        """
        Publish *blocks*, which the caller holds and which the model has filled.

        Return the blocks that now hold the tokens. Where the cache had a block with the same
        tokens, the caller's is released and the cached one is acquired in its place.

        Args:
            token_ids: the tokens from position 0; whole blocks only.
            blocks: one block for each run of ``block_size`` tokens.
            salt: only requests with the same salt will find them.
            cache_priority: blocks of lower priority are evicted before these.
        """
        assert len(token_ids) == len(blocks) * self.block_size, "only whole blocks are published"
        held: list[BlockId] = []
        parent: Entry | None = None
        root = key = self._root(salt)
        for block, tokens in zip(blocks, self._runs(token_ids), strict=True):
            key = child_key(key, tokens)
            known = self._entries.get(key)
            if known is None:
                known = self._publish(Entry(key, parent, tokens, block, root, cache_priority))
            elif known.tokens != tokens or known.parent is not parent:
                # A hash collision: the rest is not published.
                return held + list(blocks[len(held) :])
            if known.block != block:
                self._hold(known, cache_priority)
                self.release([block])
            known.cache_priority = max(known.cache_priority, cache_priority)
            held.append(known.block)
            parent = known
        return held

    def insert_part(
        self,
        token_ids: Sequence[int],
        blocks: Sequence[BlockId],
        *,
        salt: str = "",
        cache_priority: int = 0,
    ) -> None:
        """Publish the last of *blocks*, partially filled, for `match_part`."""
        whole = len(blocks) - 1
        parent = self._by_block.get(blocks[whole - 1]) if whole else None
        tokens = tuple(token_ids[whole * self.block_size :])
        assert 0 < len(tokens) < self.block_size, "the last block is filled in part"
        root = self._root(salt)
        key = child_key(root if parent is None else parent.key, tokens)
        if key not in self._entries and (parent is not None or not whole):
            self._publish(Entry(key, parent, tokens, blocks[-1], root, cache_priority))

    def release(self, blocks: Sequence[BlockId]) -> None:
        """Release the *blocks* of one sequence, in order; published ones stay cached."""
        for block in reversed(blocks):
            entry = self._by_block.get(block)
            if entry is not None and self._pool.ref_count(block) == 2:  # noqa: PLR2004 - cache, caller
                self._idle.add(block, cache_priority=entry.cache_priority)
            self._pool.release([block])

    def evict(self, count: int) -> int:
        """Evict up to *count* blocks that only the cache references; return how many."""
        num_evicted = 0
        while num_evicted < count and self._idle:
            self._remove(self._by_block[self._idle.first()])
            num_evicted += 1
        self.num_evicted += num_evicted
        return num_evicted

    def discard(self, token_ids: Sequence[int], *, num_kept: int = 0, salt: str = "") -> int:
        """
        Evict the blocks of *token_ids* after the first *num_kept* tokens; return how many.

        Also blocks that continue *token_ids*: the last computed tokens of a sequence may never have
        been emitted. Blocks in use, and blocks that another cached text continues, are kept.
        """
        first = -(-num_kept // self.block_size)
        chain = list(self._walk(token_ids, salt))
        num_discarded = 0
        for index in range(len(chain), first - 1, -1):
            num_discarded += self._discard_behind(chain[:index], token_ids, salt)
            if (
                index == first
                or chain[index - 1].num_children
                or (chain[index - 1].block not in self._idle)
            ):
                break
            self._remove(chain[index - 1])
            num_discarded += 1
        return num_discarded

    def _discard_behind(self, chain: Sequence[Entry], token_ids: Sequence[int], salt: str) -> int:
        """Evict the descendants of *chain* that match *token_ids*, with all their descendants."""
        siblings = chain[-1].children if chain else self._heads.get(self._root(salt), {})
        rest = tuple(token_ids[len(chain) * self.block_size :])
        found = [e for e in siblings.values() if e.tokens[: len(rest)] == rest[: len(e.tokens)]]
        for entry in found:  # grows during the iteration
            found += entry.children.values()
        num_discarded = 0
        for entry in reversed(found):
            if not entry.children and self._idle.discard(entry.block):
                self._forget(entry)
                num_discarded += 1
        return num_discarded

    def forget(self, *, salt: str) -> list[BlockId]:
        """
        Evict all blocks under *salt*, and return those that are free now.

        A block of a running sequence can no longer be matched, and is freed when the sequence ends.
        """
        root = self._root(salt)
        freed = []
        # Newest first: a block is newer than its parent.
        for entry in reversed([e for e in self._entries.values() if e.root == root]):
            if self._idle.discard(entry.block):
                freed.append(entry.block)
            self._forget(entry)
        return freed

    def check(self, tables: Iterable[Sequence[BlockId]] | None = None) -> None:
        """Assert that tree, eviction queue, pool and, if given, the *tables* of holders agree."""
        self._pool.check()
        if tables is not None:
            holders = Counter(block for table in tables for block in table)
            holders.update(list(self._by_block))
            self._pool.check_holders(holders)
        check_tree(self._entries, self._by_block, self._idle, self._pool)

    def _publish(self, entry: Entry) -> Entry:
        self._entries[entry.key] = entry
        self._by_block[entry.block] = entry
        self._siblings(entry)[entry.key] = entry
        self._pool.acquire(entry.block)
        return entry

    def _hold(self, entry: Entry, cache_priority: int) -> None:
        self._pool.acquire(entry.block)
        self._idle.discard(entry.block)
        entry.cache_priority = max(entry.cache_priority, cache_priority)

    def _remove(self, entry: Entry) -> None:
        assert entry.num_children == 0, "a head would die before its tail"
        self._idle.discard(entry.block)
        self._forget(entry)

    def _forget(self, entry: Entry) -> None:
        del self._entries[entry.key], self._by_block[entry.block]
        siblings = self._siblings(entry)
        del siblings[entry.key]
        if entry.parent is None and not siblings:
            del self._heads[entry.root]
        self._pool.release([entry.block])

    def _siblings(self, entry: Entry) -> dict[bytes, Entry]:
        """Return the siblings: entries with the same parent or root."""
        if entry.parent is not None:
            return entry.parent.children
        return self._heads.setdefault(entry.root, {})

    def _walk(self, token_ids: Sequence[int], salt: str) -> Iterator[Entry]:
        parent: Entry | None = None
        key = self._root(salt)
        for tokens in self._runs(token_ids):
            key = child_key(key, tokens)
            entry = self._entries.get(key)
            if entry is None or entry.tokens != tokens or entry.parent is not parent:
                return
            yield entry
            parent = entry

    def _runs(self, token_ids: Sequence[int]) -> Iterator[tuple[int, ...]]:
        return whole_blocks(token_ids, self.block_size)

    def _root(self, salt: str) -> bytes:
        return root_key(model=self._model, salt=salt)
