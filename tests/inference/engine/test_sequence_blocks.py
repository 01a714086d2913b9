"""What a fork shares with its parent, on blocks alone: the tensors are left out."""

from unittest.mock import Mock

from agentmem.inference.engine.sequence_blocks import SequenceBlocks
from agentmem.inference.kv_cache.block_pool import BlockPool
from agentmem.inference.kv_cache.prefix_cache import PrefixCache
from agentmem.inference.kv_cache.sequence import Sequence


def test_a_fork_publishes_what_its_parent_has_not_published_yet():
    cache = PrefixCache(BlockPool(8), block_size=2, model="m")
    blocks = SequenceBlocks(cache, Mock())
    parent, child = (
        Sequence(token_ids=[1, 2, 3, 4, 5], num_prompt=5, max_tokens=4, reader=Mock())
        for _ in range(2)
    )
    parent.table = cache.allocate(2)
    parent.num_computed = 4
    parent.table[:1] = cache.insert([1, 2], parent.table[:1])
    parent.num_published = 1

    assert blocks.fork(parent, child)
    blocks.publish(child)

    assert child.num_published == 2
    assert cache.num_known(cache.keys([1, 2, 3, 4])) == 2
    cache.check([parent.table, child.table])
