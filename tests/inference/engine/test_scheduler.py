"""Who starts, what a step computes and who gives way: plain values, no model."""

from hypothesis import given
from hypothesis import strategies as st

from agentmem.inference.engine.scheduler import Limits, Scheduler
from agentmem.inference.kv_cache.sequence import Sequence, State
from agentmem.inference.runner.batch_plan import MAX_PAD_SLOTS, shared_prefixes, split_by_length

LIMITS = Limits(max_num_seqs=4, max_num_batched_tokens=100, prefill_chunk=40, ageing_s=10.0)


class NoReader:
    """Nobody reads."""


def sequence(num_tokens=30, *, arrived=0.0, priority=0, keys=(), max_tokens=10):
    return Sequence(
        token_ids=[0] * num_tokens,
        num_prompt=num_tokens,
        max_tokens=max_tokens,
        reader=NoReader(),
        arrived=arrived,
        priority=priority,
        keys=list(keys),
    )


def scheduler(*waiting, limits=LIMITS):
    made = Scheduler(limits)
    for one in waiting:
        made.add(one)
    return made


def order(made, *, now=0.0, known=None):
    """Start everybody who may, one after the other."""
    known = known or {}
    started = []
    for one, _ in made.candidates(now, lambda one: known.get(id(one), 0)):
        made.start(one)
        started.append(one)
    return started


def test_first_come_first_served():
    a, b, c = (sequence(arrived=n) for n in (2.0, 0.0, 1.0))
    assert order(scheduler(a, b, c)) == [b, c, a]


def test_a_higher_priority_goes_first_until_the_others_have_waited_for_long():
    old, urgent = sequence(arrived=0.0), sequence(arrived=25.0, priority=2)

    assert order(scheduler(old, urgent), now=19.0) == [urgent, old]
    assert order(scheduler(old, urgent), now=35.0) == [old, urgent]


def test_the_longest_cached_prefix_goes_first_but_not_for_ever():
    cold, warm = sequence(arrived=0.0), sequence(arrived=1.0)
    known = {id(warm): 5}
    assert order(scheduler(cold, warm), known=known) == [warm, cold]

    cold.num_passed = LIMITS.max_passed
    assert order(scheduler(cold, warm), known=known) == [cold, warm]


def test_being_passed_over_is_counted():
    cold, warm = sequence(arrived=0.0), sequence(arrived=1.0)
    made = scheduler(cold, warm)

    made.start(warm)

    assert (cold.num_passed, warm.num_passed) == (1, 0)


def test_who_shares_an_uncached_prefix_waits_for_the_first():
    keys = [b"a", b"b", b"c"]
    first, second = sequence(keys=keys, arrived=0), sequence(keys=[*keys[:2], b"d"], arrived=1)
    other = sequence(keys=[b"x"], arrived=2)
    made = scheduler(first, second, other)

    assert order(made) == [first, other]
    assert second.state is State.WAITING

    # The first two blocks are published: what comes next is not what the first computes.
    first.num_published = 2
    assert order(made, known={id(second): 2}) == [second]


def test_a_follower_leads_when_the_leader_is_gone():
    first, second = (sequence(keys=[b"a"], arrived=n) for n in (0, 1))
    made = scheduler(first, second)
    assert order(made) == [first]

    made.remove(first)

    assert order(made) == [second]


def test_a_preempted_sequence_starts_over_at_the_front_with_what_it_has_said():
    first, second = sequence(arrived=0), sequence(arrived=1)
    made = scheduler(first, second)
    made.start(second)
    second.token_ids += [7, 8]
    second.num_computed, second.num_written = 31, 16

    made.requeue(second)

    assert order(made) == [second, first]
    assert second.num_generated == 2
    assert (second.num_computed, second.num_written, second.num_preempted) == (0, 0, 1)


def test_the_least_and_youngest_gives_way_and_the_last_one_stays():
    a, b, c = (sequence(priority=p) for p in (1, 0, 0))
    made = scheduler(a, b, c)
    for one in (a, b, c):
        made.start(one)

    assert made.victim(0.0) is c
    made.remove(c)
    assert made.victim(0.0) is b
    made.remove(b)
    assert made.victim(0.0) is None


def running(*sequences, limits=LIMITS):
    made = scheduler(*sequences, limits=limits)
    for one in sequences:
        made.start(one)
    return made


def test_a_long_prompt_is_computed_in_chunks_of_its_own():
    long, short = sequence(95), sequence(20)
    made = running(long, short)

    assert made.prefills() == [[(long, 40)], [(short, 20)]]
    long.num_computed = 40
    short.num_computed = 20
    short.token_ids.append(1)
    assert made.decoding() == [short]
    assert made.prefills() == [[(long, 40)]]
    long.num_computed = 80
    assert made.prefills() == [[(long, 15)]]


def test_a_step_takes_no_more_than_its_tokens_and_no_small_ends_of_chunks():
    a, b, c = sequence(40), sequence(40), sequence(40)

    assert running(a, b, c).prefills() == [[(a, 40), (b, 40)]]


def test_prompts_of_one_length_go_together_and_of_others_apart():
    a, b, c = sequence(20), sequence(22), sequence(5)

    assert running(a, b, c).prefills() == [[(c, 5)], [(a, 20), (b, 22)]]


@given(
    st.lists(
        st.tuples(st.integers(1, 120), st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=9
    )
)
def test_every_step_moves_somebody_and_all_come_to_an_end(rows):
    """Each is started once, no step takes too much, and nobody is left."""
    limits = Limits(max_num_seqs=3, max_num_batched_tokens=50, prefill_chunk=20)
    waiting = [
        sequence(num, arrived=n, priority=priority, keys=[b"%d" % key])
        for n, (num, priority, key) in enumerate(rows)
    ]
    made = scheduler(*waiting, limits=limits)
    published, ended = set(), []
    for _ in range(1000):
        for one, _ in made.candidates(0.0, lambda one: int(one.keys[0] in published)):
            if not made.has_room:
                break
            made.start(one)
        batches = made.prefills()
        assert sum(num for batch in batches for _, num in batch) <= 50
        # A prompt that is one token behind goes along with those that decode.
        batches += [[(one, 1)] for one in made.decoding()]
        assert batches
        for batch in batches:
            for one, num in batch:
                assert 0 < num <= min(one.num_missing, 20)
                one.num_computed += num
                if one.num_missing == 0:
                    published.add(one.keys[0])
                    made.remove(one)
                    ended.append(one)
        if len(ended) == len(waiting):
            break
    assert sorted(map(id, ended)) == sorted(map(id, waiting))


def test_rows_that_begin_alike_share_that_part():
    tables = [[1, 2, 3, 4, 5], [1, 2, 3, 4, 6], [9, 2, 3, 4], []]
    assert shared_prefixes(tables, block_size=16) == [4, 4, 0, 0]


def test_a_deep_part_for_few_is_chosen_where_it_saves_more_than_a_shallow_one_for_all():
    deep = [list(range(20)), list(range(20)), list(range(20))]
    tables = [*deep, [*range(4), 90], [*range(4), 91]]
    assert shared_prefixes(tables, block_size=16) == [20, 20, 20, 0, 0]

    shallow = [[*range(12), n] for n in range(100, 109)]
    assert shared_prefixes([*shallow, shallow[0]], block_size=16) == [12] * 10


def test_what_is_short_is_not_worth_sharing():
    assert shared_prefixes([[1, 2, 3], [1, 2, 3]], block_size=16) == [0, 0]


@given(st.lists(st.lists(st.integers(1, 3), max_size=30), max_size=8))
def test_what_is_shared_is_the_same_blocks(tables):
    depths = shared_prefixes(tables, block_size=32)
    for table, depth in zip(tables, depths, strict=True):
        assert depth == 0 or 2 <= depth <= len(table)
        if depth:
            alike = [t for t, d in zip(tables, depths, strict=True) if t[:d] == table[:depth]]
            assert len(alike) >= 2


def test_lengths_are_split_where_padding_costs_more_than_a_pass():
    assert split_by_length([100, 110, 190]) == [[0, 1, 2]]
    assert split_by_length([10, 1000]) == [[0, 1]]
    assert split_by_length([10, 20, MAX_PAD_SLOTS * 2]) == [[0, 1], [2]]
    assert split_by_length([]) == []


@given(st.lists(st.integers(0, 100_000), max_size=12))
def test_splitting_loses_nobody(lengths):
    groups = split_by_length(lengths)
    assert sorted(row for group in groups for row in group) == list(range(len(lengths)))
