"""The eviction order of blocks that only the prefix cache references. Plain Python."""

from collections import OrderedDict
from collections.abc import Iterator

from agentmem.inference.kv_cache.block_pool import BlockId


class EvictionQueue:
    """
    Lowest priority level first, least recently used within a level.

    Adding, removing and finding the next victim take constant time, for a handful of levels.
    """

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[BlockId, None]] = {}
        self._level_of: dict[BlockId, int] = {}

    def __len__(self) -> int:
        return len(self._level_of)

    def __contains__(self, block: object) -> bool:
        return block in self._level_of

    def __iter__(self) -> Iterator[BlockId]:
        """Return the blocks in order of eviction."""
        for level in sorted(self._levels):
            yield from self._levels[level]

    def add(self, block: BlockId, *, cache_priority: int) -> None:
        """Append *block* to its level."""
        self._level_of[block] = cache_priority
        self._levels.setdefault(cache_priority, OrderedDict())[block] = None

    def discard(self, block: BlockId) -> bool:
        """Remove *block*; return whether it was queued."""
        level = self._level_of.pop(block, None)
        if level is None:
            return False
        del self._levels[level][block]
        if not self._levels[level]:
            del self._levels[level]
        return True

    def first(self) -> BlockId:
        """Return the next block to evict."""
        return next(iter(self._levels[min(self._levels)]))

    def clear(self) -> None:
        """Remove all blocks."""
        self._levels.clear()
        self._level_of.clear()
