"""Block operations of a sequence: publish, copy, share with a fork."""

from collections.abc import Iterable

from agentmem.inference.kv_cache.block_pool import BlockId
from agentmem.inference.kv_cache.prefix_cache import PrefixCache
from agentmem.inference.kv_cache.sequence import Sequence
from agentmem.inference.runner.model_runner import Runner

_MIN_COPIED = 2
"""Minimum tokens for copying a block; fewer are computed as fast."""


class SequenceBlocks:
    """
    Keeps the blocks of sequences and their tensors consistent.

    Args:
        prefixes: the prefix cache.
        runner: owns the tensors.
    """

    def __init__(self, prefixes: PrefixCache, runner: Runner) -> None:
        self._prefixes = prefixes
        self._runner = runner

    def publish(self, sequence: Sequence) -> None:
        """Write new whole blocks to the pool, then publish them."""
        size = self._prefixes.block_size
        full = sequence.num_computed // size
        if full <= sequence.num_published:
            return
        self._runner.save(sequence)
        sequence.table[:full] = self._prefixes.insert(
            sequence.token_ids[: full * size],
            sequence.table[:full],
            salt=sequence.salt,
            cache_priority=sequence.cache_priority,
        )
        sequence.num_published = full

    def publish_part(self, sequence: Sequence) -> None:
        """Publish the last, partial block for the next turn to copy; it is no longer written."""
        num, size = sequence.num_computed, self._prefixes.block_size
        if num % size == 0:
            return
        self._runner.save(sequence, partial=True)
        blocks = sequence.table[: num // size + 1]
        self._prefixes.insert_part(
            sequence.token_ids[:num],
            blocks,
            salt=sequence.salt,
            cache_priority=sequence.cache_priority,
        )

    def copy_part(self, sequence: Sequence) -> None:
        """Copy the matching part of a cached block into the next block, if one is free."""
        table = sequence.table
        found = self._prefixes.match_part(sequence.token_ids, table, salt=sequence.salt)
        if found is None:
            return
        block, num_tokens = found
        if num_tokens >= _MIN_COPIED and self._prefixes.num_available > 0:
            [own] = self._prefixes.allocate(1)
            self._runner.copy(block, own)
            table.append(own)
            sequence.num_computed += num_tokens
            sequence.num_written = sequence.num_computed
        self._prefixes.release([block])

    def fork(self, parent: Sequence, child: Sequence) -> bool:
        """Share the whole blocks of *parent* with *child* and copy the last, if a block is free."""
        whole = parent.num_computed // self._prefixes.block_size
        partial = len(parent.table) - whole
        if self._prefixes.num_available < partial:
            return False
        self._runner.save(parent, partial=True)
        own = self._prefixes.allocate(partial)
        if own:
            self._runner.copy(parent.table[whole], own[0])
        child.table = [*self._prefixes.hold(parent.table[:whole]), *own]
        child.num_computed = child.num_written = parent.num_computed
        child.num_published = min(parent.num_published, whole)
        return True

    def num_tokens(self, sequences: Iterable[Sequence]) -> int:
        """Return the number of tokens in blocks of *sequences*, counting shared blocks once."""
        size = self._prefixes.block_size
        used: dict[BlockId, int] = {}
        for sequence in sequences:
            for number, block in enumerate(sequence.table):
                num = min(max(sequence.num_computed - number * size, 0), size)
                used[block] = max(used.get(block, 0), num)
        return sum(used.values())
