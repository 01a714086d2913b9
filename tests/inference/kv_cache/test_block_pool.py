import pytest

from agentmem.errors import ConfigError, OutOfBlocksError
from agentmem.inference.kv_cache.block_pool import NULL_BLOCK, BlockPool


def test_a_failed_allocation_takes_nothing():
    pool = BlockPool(4)
    pool.allocate(3)

    with pytest.raises(OutOfBlocksError) as caught:
        pool.allocate(2)

    assert (caught.value.needed, caught.value.free, caught.value.total) == (2, 1, 4)
    assert pool.num_free == 1


def test_the_null_block_is_never_handed_out():
    pool = BlockPool(3)

    assert NULL_BLOCK not in pool.allocate(3)


def test_a_block_is_free_when_its_last_holder_lets_go():
    pool = BlockPool(1)
    [block] = pool.allocate(1)
    pool.acquire(block)

    pool.release([block])
    assert pool.num_free == 0
    pool.release([block])
    assert pool.num_free == 1


def test_blocks_that_were_used_come_back_before_untouched_ones():
    """An untouched block has no memory yet; reusing the others keeps the tensors small."""
    pool = BlockPool(100)
    first = pool.allocate(2)
    pool.release(first)

    assert set(pool.allocate(2)) == set(first)


def test_a_block_released_twice_is_a_bug_and_says_so():
    pool = BlockPool(2)
    [block] = pool.allocate(1)
    pool.release([block])

    with pytest.raises(AssertionError, match="released twice"):
        pool.release([block])


def test_a_free_block_cannot_be_shared():
    with pytest.raises(AssertionError, match="is free"):
        BlockPool(2).acquire(1)


def test_a_pool_without_blocks_is_refused():
    with pytest.raises(ConfigError, match="at least 1, got 0"):
        BlockPool(0)
