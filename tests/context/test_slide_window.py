from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.slide_window import keep_from


def test_the_window_is_filled_from_the_end():
    assert keep_from([5, 5, 5], 10) == 1


def test_the_window_never_leaves_a_gap():
    """Unit 0 would fit, but unit 1 between it and the kept tail does not."""
    assert keep_from([1, 50, 10], 20) == 2


def test_nothing_is_kept_under_a_limit_that_is_spent():
    assert keep_from([0, 5], -1) == 2


@given(st.lists(st.integers(0, 40), max_size=12), st.integers(-10, 100))
def test_what_is_kept_fits_and_one_more_would_not(sizes, limit):
    first = keep_from(sizes, limit)

    assert sum(sizes[first:]) <= limit or first == len(sizes)
    assert first == 0 or sum(sizes[first - 1 :]) > limit
