import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import VectorError
from agentmem.retrieval.dense.vector_index import FaissIndex, as_unit

DIMENSION = 8


def unit(count, seed=0, dimension=DIMENSION):
    found = np.random.default_rng(seed).standard_normal((count, dimension)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def filled(rows, vectors):
    index = FaissIndex(vectors.shape[1])
    index.add(np.asarray(rows), vectors)
    return index


def brute_force(rows, vectors, query, allowed):
    """The same by a loop over plain dot products."""
    expected = np.full(len(allowed), np.nan)
    for row, one in zip(rows, vectors, strict=True):
        score = float(np.dot(one.astype(np.float64), query)) if allowed[row] else -np.inf
        expected[row] = score if np.isnan(expected[row]) else max(expected[row], score)
    return expected


@given(
    rows=st.lists(st.integers(0, 11), max_size=40),
    allowed=st.lists(st.booleans(), min_size=12, max_size=12),
    seed=st.integers(0, 1000),
)
def test_scores_are_those_of_a_dot_product(rows, allowed, seed):
    """Rows without a vector, with several, and those that are not allowed."""
    vectors, query = unit(len(rows), seed), unit(1, seed + 5000)[0]
    index = filled(np.array(rows, np.int64), vectors)

    scores = index.scores(query, np.array(allowed))

    expected = brute_force(rows, vectors, query, allowed)
    np.testing.assert_allclose(scores, expected, atol=1e-6)


def test_equal_vectors_have_equal_scores_wherever_they_stand():
    """Else what is ranked first would depend on the order in which vectors were loaded."""
    vectors = unit(1001, dimension=37)
    vectors[::7] = vectors[0]
    index = filled(np.arange(1001), vectors)

    for share in (2, 3, 50):
        scores = index.scores(unit(1, 9, 37)[0], np.arange(1001) % share == 0)
        same = scores[::7]
        assert len(set(same[np.isfinite(same)])) == 1


def test_the_same_vector_has_the_same_score_under_any_filter():
    vectors = unit(1000, dimension=37)
    index = filled(np.arange(1000), vectors)
    query = unit(1, 9, 37)[0]

    broad = index.scores(query, np.ones(1000, np.bool_))
    narrow = index.scores(query, np.arange(1000) % 50 == 0)

    assert (narrow[::50] == broad[::50]).all()


def test_what_was_removed_has_no_score_and_the_rest_keeps_its_own():
    vectors = unit(10)
    index = filled([0, 1, 1, 2, 3, 4, 5, 6, 7, 8], vectors)
    before = index.scores(vectors[0], np.ones(9, np.bool_))

    index.remove({1, 8, 77})

    after = index.scores(vectors[0], np.ones(9, np.bool_))
    assert np.isnan(after[[1, 8]]).all()
    kept = [0, 2, 3, 4, 5, 6, 7]
    assert (after[kept] == before[kept]).all()
    assert len(index) == 7


def test_an_index_without_vectors_finds_nothing():
    index = FaissIndex(DIMENSION)
    index.add(np.empty(0, np.int64), np.empty((0, DIMENSION), np.float32))
    index.remove([1])

    assert np.isnan(index.scores(unit(1)[0], np.ones(3, np.bool_))).all()
    assert index.scores(unit(1)[0], np.ones(0, np.bool_)).shape == (0,)
    assert index.vectors().shape == (0, DIMENSION)


@pytest.mark.parametrize(
    "bad",
    [
        np.zeros((1, DIMENSION)),
        np.full((1, DIMENSION), np.nan),
        np.full((1, DIMENSION), np.inf),
        np.ones((1, DIMENSION + 1)),
        np.ones((1, DIMENSION - 1)),
        np.ones(DIMENSION),
    ],
    ids=["zero", "nan", "infinite", "longer", "shorter", "no table"],
)
def test_a_vector_that_cannot_be_compared_is_refused_with_all_that_came_with_it(bad):
    index = filled([0], unit(1))
    together = np.concatenate([unit(1), bad]) if bad.shape == (1, DIMENSION) else bad

    with pytest.raises(VectorError):
        index.add(np.arange(len(together)), together.astype(np.float32))
    assert len(index) == 1


def test_a_query_that_cannot_be_compared_is_refused():
    index = filled([0], unit(1))

    for bad in (np.zeros(DIMENSION), np.full(DIMENSION, np.nan), np.ones(DIMENSION + 1)):
        with pytest.raises(VectorError):
            index.scores(bad.astype(np.float32), np.ones(1, np.bool_))


def test_vectors_are_compared_by_direction_alone():
    long = unit(3) * np.array([[5.0], [0.001], [1e30]], np.float32)
    index = filled([0, 1, 2], long)

    scores = index.scores(unit(3)[1] * 42, np.ones(3, np.bool_))

    np.testing.assert_allclose(scores, unit(3) @ unit(3)[1], atol=1e-6)


def test_making_unit_vectors_of_unit_vectors_changes_no_bit():
    once = as_unit(unit(200) * 3, DIMENSION)

    assert (as_unit(once, DIMENSION) == once).all()
