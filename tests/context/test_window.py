from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.window import slide


def test_a_new_window_is_filled_from_the_end():
    assert slide([5, 5, 5], start=None, room=10, current=5, low_water=0.5) == 1


def test_a_new_window_never_leaves_a_gap():
    """Turn 0 would fit, but turn 1 between it and the kept tail does not."""
    assert slide([1, 50, 10], start=None, room=20, current=5, low_water=0.5) == 2


def test_a_window_that_still_fits_stays_where_it_was():
    assert slide([5, 5, 5], start=1, room=10, current=5, low_water=0.5) == 1


def test_a_window_that_no_longer_fits_slides_to_its_low_water_mark():
    """Room and current are 20 tokens; half of that less the current turn leaves 5."""
    assert slide([5, 5, 5, 5], start=0, room=15, current=5, low_water=0.5) == 3


def test_a_current_turn_over_the_low_water_mark_stands_alone():
    assert slide([5, 5], start=0, room=5, current=15, low_water=0.5) == 2


@given(
    sizes=st.lists(st.integers(0, 40), max_size=12),
    start=st.none() | st.integers(0, 12),
    room=st.integers(0, 100),
    current=st.integers(0, 100),
    low_water=st.floats(0, 1),
)
def test_what_is_kept_fits_and_is_no_older_than_before(sizes, start, room, current, low_water):
    start = None if start is None else min(start, len(sizes))

    first = slide(sizes, start=start, room=room, current=current, low_water=low_water)

    assert sum(sizes[first:]) <= room
    assert first >= (start or 0)
