"""
Reference counts of KV blocks. Plain Python.

The content of blocks is in `prefix_cache`, their tensors in `block_storage`.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from typing import NewType

from agentmem.errors import ConfigError, OutOfBlocksError

BlockId = NewType("BlockId", int)

NULL_BLOCK = BlockId(0)
"""Never allocated: its slots stay zero, so that padding may point at them."""


class BlockPool:
    """
    Allocates the block ids 1 to *num_blocks*, with reference counts.

    References are held by running sequences and by the prefix cache. A block is free at
    ref_count 0, so sharing a prefix is one `acquire()` and evicting it is one `release()`.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ConfigError(f"num_blocks must be at least 1, got {num_blocks}")
        self.num_blocks = num_blocks
        self.reset()

    def reset(self) -> None:
        """Free all blocks, whatever their reference counts."""
        # LIFO, so that untouched blocks, which have no memory yet, are allocated last.
        self._free = deque(BlockId(i) for i in range(1, self.num_blocks + 1))
        self._num_holders = [0] * (self.num_blocks + 1)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def ref_count(self, block: BlockId) -> int:
        """Return the reference count of *block*; 0 means that it is free."""
        return self._num_holders[block]

    def allocate(self, count: int) -> list[BlockId]:
        """
        Allocate *count* free blocks, each with ref_count 1.

        All or nothing: on a shortage the pool is unchanged, so the caller can evict and retry
        without undoing half an allocation.

        Raises:
            OutOfBlocksError: fewer than *count* blocks are free.
        """
        if count > self.num_free:
            raise OutOfBlocksError(needed=count, free=self.num_free, total=self.num_blocks)
        blocks = [self._free.popleft() for _ in range(count)]
        for block in blocks:
            self._num_holders[block] = 1
        return blocks

    def acquire(self, block: BlockId) -> None:
        """Increment the ref_count of *block*, which must be at least 1."""
        assert self._num_holders[block] > 0, f"block {block} is free and cannot be shared"
        self._num_holders[block] += 1

    def release(self, blocks: Iterable[BlockId]) -> None:
        """Decrement the ref_count of each of *blocks*; free those that reach 0."""
        for block in blocks:
            assert self._num_holders[block] > 0, f"block {block} released twice"
            self._num_holders[block] -= 1
            if self._num_holders[block] == 0:
                self._free.appendleft(block)

    def check(self) -> None:
        """Assert that each block is either free or held. For tests and idle loops."""
        num_held = sum(count > 0 for count in self._num_holders)
        assert len(set(self._free)) == self.num_free, "a block was freed twice"
        assert num_held + self.num_free == self.num_blocks, "a block was lost"
        assert self._num_holders[NULL_BLOCK] == 0, "the null block was handed out"
        assert all(self._num_holders[block] == 0 for block in self._free), "a free block is held"

    def check_holders(self, expected: Mapping[BlockId, int]) -> None:
        """Assert the *expected* reference counts; 0 for blocks that it does not have."""
        for block in map(BlockId, range(1, self.num_blocks + 1)):
            found, wanted = self._num_holders[block], expected.get(block, 0)
            assert found == wanted, f"block {block} has {found} holders and not {wanted}"
