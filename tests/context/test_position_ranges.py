import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.context.layout import join
from agentmem.context.position_ranges import split_at, subtract
from agentmem.errors import InvalidInputError
from agentmem.types import DisplayForm, Span, Tier


def span(first, last, tier=None, **fields):
    return Span(first=first, last=last, tier=tier, **fields)


def runs_of(positions):
    return join(span(position, position) for position in positions)


def positions_of(spans):
    return [p for s in spans for p in range(s.first, s.last + 1)]


def test_neighbours_of_one_tier_are_one_span():
    singles = [span(p, p, Tier.RECENT) for p in (1, 2)] + [span(3, 3, Tier.CURRENT)]

    assert join(singles) == [span(1, 2, Tier.RECENT), span(3, 3, Tier.CURRENT)]


def test_clipped_neighbours_stay_apart():
    clipped = [span(p, p, Tier.RECENT, form=DisplayForm.CLIPPED, kept_chars=9) for p in (1, 2)]

    assert join(clipped) == clipped


def test_anchored_neighbours_stay_apart():
    anchored = [span(p, p, Tier.RETRIEVED, anchor=9) for p in (1, 2)]

    assert join(anchored) == anchored


def test_an_anchored_span_joins_none_without_an_anchor():
    spans = [span(1, 1, Tier.RETRIEVED), span(2, 2, Tier.RETRIEVED, anchor=9)]

    assert join(spans) == spans


@pytest.mark.parametrize(
    ("tier", "number"),
    [(Tier.RECENT, "anchor"), (None, "anchor"), (Tier.RETRIEVED, "kept_chars")],
)
def test_a_span_has_no_number_of_another_tier(tier, number):
    with pytest.raises(InvalidInputError, match=number):
        span(1, 1, tier, **{number: 5})


def test_splitting_leaves_out_an_empty_side():
    assert split_at(span(3, 5), 2) == [span(3, 5)]
    assert split_at(span(3, 5), 5) == [span(3, 5)]
    assert split_at(span(3, 5), 3) == [span(3, 3), span(4, 5)]


def test_what_is_left_of_a_span_is_otherwise_the_same():
    whole = span(1, 5, Tier.SUMMARY, source="key")

    assert subtract([whole], [span(2, 3)]) == [
        span(1, 1, Tier.SUMMARY, source="key"),
        span(4, 5, Tier.SUMMARY, source="key"),
    ]


@given(st.sets(st.integers(1, 30)), st.sets(st.integers(1, 30)))
def test_subtracting_spans_is_subtracting_sets(kept, taken):
    left = subtract(runs_of(kept), runs_of(taken))

    assert positions_of(left) == sorted(kept - taken)
