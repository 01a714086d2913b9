import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agentmem.errors import OutOfBlocksError
from agentmem.inference.kv_cache import prefix_cache
from agentmem.inference.kv_cache.block_pool import BlockPool
from agentmem.inference.kv_cache.prefix_cache import PrefixCache

A, B, C = (1, 2), (3, 4), (5, 6)


def make_cache(num_blocks=8):
    pool = BlockPool(num_blocks)
    return pool, PrefixCache(pool, block_size=2, model="m")


def publish(cache, token_ids, *, salt=""):
    """Play a request that runs and ends."""
    blocks = cache.insert(token_ids, cache.allocate(len(token_ids) // 2), salt=salt)
    cache.release(blocks)
    return blocks


def found(cache, token_ids, *, salt=""):
    blocks = cache.match(token_ids, salt=salt)
    cache.release(blocks)
    return blocks


def test_published_blocks_are_found_by_their_tokens():
    _, cache = make_cache()
    blocks = publish(cache, A + B)

    assert found(cache, A + B + C) == blocks
    assert found(cache, A + C + B) == blocks[:1]
    assert found(cache, B + A) == []


def test_a_match_leaves_one_token_for_the_model_to_see():
    _, cache = make_cache()
    blocks = publish(cache, A + B)

    assert found(cache, A + B) == blocks[:1]
    assert found(cache, (*A, *B, 9)) == blocks
    assert found(cache, ()) == []


def test_salts_never_share():
    _, cache = make_cache()
    publish(cache, A + B, salt="u1")

    assert found(cache, A + B + C, salt="u2") == []
    assert found(cache, A + B + C) == []
    assert len(found(cache, A + B + C, salt="u1")) == 2


def test_a_salt_cannot_pose_as_another_model():
    pool = BlockPool(4)
    one = PrefixCache(pool, block_size=2, model="m4:salt:0:")
    other = PrefixCache(pool, block_size=2, model="m")

    assert one._root("") != other._root("4:salt:0:")


def test_a_hash_collision_is_a_miss(monkeypatch):
    monkeypatch.setattr(prefix_cache, "child_key", lambda parent, _: parent[:1])
    pool, cache = make_cache()
    publish(cache, A)

    assert found(cache, B + C) == []
    blocks = cache.allocate(1)
    assert cache.insert(B, blocks) == blocks
    cache.release(blocks)
    cache.check()
    assert pool.num_free == 7


def test_tails_are_evicted_before_heads_and_old_chains_before_new():
    _, cache = make_cache()
    old = publish(cache, A + B)
    new = publish(cache, C + B)

    cache.evict(1)
    assert found(cache, (*A, *B, 0)) == old[:1]
    assert found(cache, (*C, *B, 0)) == new


def test_a_hit_makes_a_chain_young_again():
    _, cache = make_cache()
    publish(cache, A)
    publish(cache, B)
    found(cache, A + C)

    cache.evict(1)

    assert len(found(cache, A + C)) == 1
    assert found(cache, B + C) == []


def test_a_block_in_use_is_not_evicted():
    _, cache = make_cache(num_blocks=2)
    publish(cache, A)
    held = cache.match(A + B)

    with pytest.raises(OutOfBlocksError) as caught:
        cache.allocate(2)

    assert (caught.value.needed, caught.value.free, caught.value.total) == (2, 1, 2)
    cache.release(held)
    assert len(cache.allocate(2)) == 2


def test_a_failed_allocation_evicts_nothing():
    _, cache = make_cache(num_blocks=3)
    publish(cache, A)

    with pytest.raises(OutOfBlocksError):
        cache.allocate(4)

    assert len(found(cache, A + B)) == 1


def test_two_requests_that_computed_the_same_end_up_with_one_block():
    pool, cache = make_cache()
    one, two = cache.allocate(1), cache.allocate(1)
    one = cache.insert(A, one)
    two = cache.insert(A, two)

    assert one == two
    assert pool.num_free == 7
    cache.release(one)
    cache.release(two)
    assert cache.num_cached == 1
    cache.check()


def test_blocks_that_are_published_again_outlive_what_the_higher_priority_says():
    _, cache = make_cache(num_blocks=2)
    kept = cache.insert(A, cache.allocate(1))
    assert cache.insert(A, kept, cache_priority=1) == kept
    cache.release(kept)
    publish(cache, B)

    cache.evict(1)

    assert found(cache, (*A, 9)) == kept
    assert found(cache, (*B, 9)) == []


def test_of_blocks_that_agree_as_far_the_newest_is_copied():
    _, cache = make_cache()
    publish(cache, (1, 2))
    newest = publish(cache, (1, 3))

    found_part = cache.match_part((1, 4, 9), [])

    assert found_part == (newest[0], 1)
    cache.release(newest)


def test_discard_drops_a_chain_behind_what_is_kept():
    pool, cache = make_cache()
    publish(cache, A + B + C)

    assert cache.discard(A + B + C, num_kept=3) == 1
    assert len(found(cache, (*A, *B, 0))) == 2
    assert pool.num_free == 6


def test_discard_drops_what_was_computed_behind_the_tokens_and_never_told():
    _, cache = make_cache()
    publish(cache, A + B + C)
    blocks = cache.match((*A, *B, 0)) + cache.allocate(1)
    cache.insert_part((*A, *B, 9), blocks)
    cache.release(blocks)

    assert cache.discard((*A, 3), num_kept=2) == 3
    assert len(found(cache, (*A, 0))) == 1


def test_discard_leaves_what_goes_on_otherwise_behind_the_tokens():
    _, cache = make_cache()
    publish(cache, A + B)

    assert cache.discard((*A, 9), num_kept=2) == 0
    assert len(found(cache, (*A, *B, 0))) == 2


def test_discard_leaves_what_another_chain_continues():
    _, cache = make_cache()
    publish(cache, A + B)
    publish(cache, A + C)

    assert cache.discard(A + B) == 1
    assert len(found(cache, (*A, *C, 0))) == 2


def test_discard_leaves_what_is_in_use():
    _, cache = make_cache()
    publish(cache, A + B)
    held = cache.match((*A, *B, 0))

    assert cache.discard(A + B) == 0
    cache.release(held)
    assert cache.discard(A + B) == 2


def test_forgetting_a_salt_drops_all_of_it_and_nothing_else():
    pool, cache = make_cache()
    mine = publish(cache, A + B, salt="x") + publish(cache, A + C, salt="x")[1:]
    other = publish(cache, A + B)

    freed = cache.forget(salt="x")

    assert sorted(freed) == sorted(mine)
    assert found(cache, A + B + C, salt="x") == []
    assert found(cache, A + B + C) == other
    assert pool.num_free == 8 - len(other)
    cache.check()


def test_what_was_forgotten_in_use_is_free_when_its_request_ends():
    pool, cache = make_cache()
    publish(cache, A + B, salt="x")
    held = cache.match((*A, *B, 0), salt="x")

    assert cache.forget(salt="x") == []
    assert found(cache, A + B + C, salt="x") == []
    cache.release(held)
    assert pool.num_free == 8


class PrefixCacheMachine(RuleBasedStateMachine):
    """Random requests over a small alphabet, against a plain model: who holds which tokens."""

    NUM_BLOCKS = 6
    prompts = st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple)
    salts = st.sampled_from(["", "x"])

    def __init__(self):
        super().__init__()
        self.pool = BlockPool(self.NUM_BLOCKS)
        self.cache = PrefixCache(self.pool, block_size=2, model="m")
        self.running = []
        # What each block holds: the salt and all tokens up to its end.
        self.contents = {}

    @rule(token_ids=prompts, salt=salts)
    def start(self, token_ids, salt):
        hit = self.cache.match(token_ids, salt=salt)
        for i, block in enumerate(hit):
            assert self.contents[block] == (salt, token_ids[: 2 * i + 2])
        try:
            new = self.cache.allocate(-(-len(token_ids) // 2) - len(hit))
        except OutOfBlocksError:
            self.cache.release(hit)
            return
        held = {block for _, _, blocks in self.running for block in blocks} | set(hit)
        assert not held & set(new)
        for i, block in enumerate(new, start=len(hit)):
            self.contents[block] = (salt, token_ids[: 2 * i + 2])
        self.running.append((token_ids, salt, hit + new))

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def publish(self, data):
        index = data.draw(st.integers(0, len(self.running) - 1))
        token_ids, salt, blocks = self.running[index]
        full = len(token_ids) // 2
        held = self.cache.insert(token_ids[: 2 * full], blocks[:full], salt=salt)
        for i, block in enumerate(held):
            assert self.contents[block] == (salt, token_ids[: 2 * i + 2])
        self.running[index] = (token_ids, salt, held + blocks[full:])

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def end(self, data):
        index = data.draw(st.integers(0, len(self.running) - 1))
        _, _, blocks = self.running.pop(index)
        self.cache.release(blocks)

    @rule(count=st.integers(0, 3))
    def evict(self, count):
        self.cache.evict(count)

    @rule(token_ids=prompts, num_kept=st.integers(0, 4), salt=salts)
    def discard(self, token_ids, num_kept, salt):
        self.cache.discard(token_ids, num_kept=num_kept, salt=salt)

    @rule(salt=salts)
    def forget(self, salt):
        self.cache.forget(salt=salt)
        assert self.cache.match((0,) * 9, salt=salt) == []

    @invariant()
    def the_accounts_agree(self):
        self.cache.check()
        held = {block for _, _, blocks in self.running for block in blocks}
        assert self.pool.num_free + self.cache.num_cached + len(held) == self.NUM_BLOCKS


TestPrefixCacheMachine = pytest.mark.slow(PrefixCacheMachine.TestCase)
TestPrefixCacheMachine.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
