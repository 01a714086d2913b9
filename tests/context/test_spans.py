from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.spans import shown_spans, split_at, subtract, with_gaps
from agentmem.types import Span, Tier


def span(first, last, tier=None):
    return Span(first=first, last=last, tier=tier)


def runs_of(positions):
    return shown_spans((position, None) for position in sorted(positions))


def positions_of(spans):
    return [p for s in spans for p in range(s.first, s.last + 1)]


def test_neighbours_of_one_tier_are_one_span():
    tiers = [(1, Tier.RECENT), (2, Tier.RECENT), (3, Tier.CURRENT), (5, Tier.CURRENT)]

    assert shown_spans(tiers) == [
        span(1, 2, Tier.RECENT),
        span(3, 3, Tier.CURRENT),
        span(5, 5, Tier.CURRENT),
    ]


def test_gaps_are_spans_without_a_tier():
    shown = [span(3, 4, Tier.RECENT)]

    assert with_gaps(shown, head=6) == (span(1, 2), span(3, 4, Tier.RECENT), span(5, 6))


def test_a_gap_over_the_cut_is_two_spans():
    assert with_gaps([], head=6, cut=2) == (span(1, 2), span(3, 6))


def test_splitting_leaves_out_an_empty_side():
    assert split_at(span(3, 5), 2) == [span(3, 5)]
    assert split_at(span(3, 5), 5) == [span(3, 5)]


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_subtracting_spans_is_subtracting_sets(kept, taken):
    left = subtract(runs_of(kept), runs_of(taken))

    assert positions_of(left) == sorted(kept - taken)


@given(st.sets(st.integers(1, 30)), st.integers(0, 30), st.integers(0, 30))
def test_a_layout_covers_each_position_once(shown, cut, more):
    head = max(shown, default=0) + more

    layout = with_gaps(
        shown_spans((position, Tier.RECENT) for position in sorted(shown)), head, cut
    )

    assert positions_of(layout) == list(range(1, head + 1))
