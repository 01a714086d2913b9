import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import AdmissionError
from agentmem.inference.engine.admission import HIGH_FACTOR, LOW_FACTOR, Admission
from tests.inference.engine.test_scheduler import sequence


def admission(num_blocks=10, *, window=1000):
    return Admission(block_size=4, num_blocks=num_blocks, context_window=window)


def ended(num_generated, *, max_tokens=100):
    one = sequence(10, max_tokens=max_tokens)
    one.token_ids += [0] * num_generated
    return one


def test_what_can_never_fit_is_refused_at_once_with_the_numbers():
    started = time.thread_time()

    with pytest.raises(
        AdmissionError, match=r"needs 41 tokens but the KV pool .* holds 40 \(free now: 12\)"
    ) as caught:
        admission().check(30, 11, free=3)

    assert (caught.value.needed, caught.value.limit, caught.value.free) == (41, 40, 12)
    assert time.thread_time() - started < 0.05


def test_the_smaller_of_pool_and_window_is_the_limit():
    assert admission().check(30, 10, free=0) == 10
    assert admission().check(30, None, free=0) == 10
    assert admission(window=35).check(30, None, free=0) == 5
    with pytest.raises(AdmissionError, match="context window holds 35"):
        admission(window=35).check(30, 6, free=0)
    assert Admission(block_size=4, num_blocks=None, context_window=50).check(30, 20, free=0) == 20


def test_the_first_guess_is_the_worst_case():
    """Ten tokens of prompt and eleven of the answer have slots; the twelfth needs none."""
    assert admission().expected_blocks(sequence(10, max_tokens=12)) == 6


def test_short_answers_lower_the_guess_down_to_the_safety_factor():
    made = admission()
    for _ in range(300):
        made.observe(ended(20))

    assert made.factor == LOW_FACTOR
    # 100 asked, 20 observed, times 1.2.
    assert made.expected_blocks(sequence(10, max_tokens=100)) == -(-(10 + 23) // 4)


def test_all_that_a_sequence_has_said_needs_slots_when_it_begins_again():
    """Its last token too: after a preemption it is computed with the others."""
    made = admission()
    for _ in range(300):
        made.observe(ended(1))
    one = sequence(4, max_tokens=100)
    one.token_ids += [0] * 5

    assert made.expected_blocks(one) == 3


def test_preemptions_raise_the_factor_and_quiet_lowers_it_again():
    made = admission()
    for _ in range(9):
        made.preempted()
    assert made.factor == HIGH_FACTOR

    for _ in range(100):
        made.observe(ended(100))
    assert made.factor == LOW_FACTOR


@given(st.lists(st.integers(0, 100)), st.integers(0, 100), st.integers(1, 50))
def test_the_guess_is_never_over_the_worst_case_nor_under_what_is_there(seen, said, prompt):
    made = admission(1000)
    for num in seen:
        made.observe(ended(num))
    one = sequence(prompt, max_tokens=100)
    one.token_ids += [0] * min(said, 99)

    blocks = made.expected_blocks(one)

    assert -(-len(one.token_ids) // 4) <= blocks <= -(-(prompt + 99) // 4)
