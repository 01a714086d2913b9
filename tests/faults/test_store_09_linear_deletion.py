"""What is deleted leaves an index in memory in time that grows with it, and not with its square."""

import time

import numpy as np
import pytest

from agentmem import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.retrieval.dense.vector_index import FaissIndex
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.retrieval.rows.growable_array import GrowableArray
from agentmem.testing import HashingEmbedder, WordCounter
from tests.retrieval.entries import said

FEW, MANY = 1000, 8000
GENEROUS = 3


def seconds_to_remove(num):
    """Measure the fastest of some removals of all but one of *num* rows that share words."""
    taken = []
    for _ in range(2):
        index = LexicalIndex()
        entries = said(*(f"topic{i} and the weather of lisbon" for i in range(num)))
        index.add(entries, range(num))
        start = time.process_time()
        index.remove(range(1, num))
        taken.append(time.process_time() - start)
        assert np.flatnonzero(index.scores("weather")).tolist() == [0]
    return min(taken)


@pytest.mark.slow
def test_a_removal_takes_as_long_as_it_is_large():
    grown = seconds_to_remove(MANY) / seconds_to_remove(FEW)
    assert grown < GENEROUS * MANY / FEW


@pytest.mark.slow
def test_rows_that_leave_one_by_one_are_as_if_never_said():
    texts = [f"topic{i % 7} and {'weather ' * (i % 3)} of lisbon" for i in range(60)]
    index = LexicalIndex()
    index.add(said(*texts), range(60))
    rng = np.random.default_rng(3)
    gone = rng.permutation(60)[:50].tolist()
    for num, row in enumerate(gone, start=1):
        index.remove([row])
        for text in ("weather", "topic3 lisbon"):
            scores = index.scores(text)
            at_once = LexicalIndex()
            at_once.add(said(*texts), range(60))
            at_once.remove(gone[:num])
            assert scores == pytest.approx(at_once.scores(text), abs=1e-6)
            assert not scores[gone[:num]].any()


def test_vectors_move_only_into_the_gaps():
    rng = np.random.default_rng(1)
    vectors = rng.standard_normal((500, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = np.repeat(np.arange(250), 2)
    index = FaissIndex(8)
    index.add(rows, vectors)
    left = set(range(250))
    for row in rng.permutation(250)[:240].tolist():
        before, first = index.vectors(), index.rows.copy()
        index.remove([row])
        left.discard(row)
        same = index.rows == first[: len(index)]
        assert np.count_nonzero(~same) <= 2
        assert (index.vectors()[same] == before[: len(index)][same]).all()
        assert set(index.rows.tolist()) == left
    for slot, row in enumerate(index.rows.tolist()):
        assert index.vectors()[slot].tolist() in vectors[rows == row].tolist()


def test_a_column_is_filled_from_its_end():
    column = GrowableArray(np.int64)
    column.extend([1, 2, 3, 4, 5])
    column.fill(np.array([0, 2]), np.array([3, 4]), 3)
    assert column.values.tolist() == [4, 2, 5]


def test_a_search_of_another_process_forgets_many_sessions_in_one_pass(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/m.db"
    retriever = HybridRetriever(HashingEmbedder(dimension=16))
    with (
        Memory.open(url, counter=WordCounter(), retriever=retriever) as memory,
        Memory.open(url, counter=WordCounter()) as other,
    ):
        for number in range(6):
            memory.session(f"s{number}").append("user", f"the weather of town{number}")
        kept = memory.session("s5")
        assert memory.wait_for_index(30)
        assert len(kept.search("weather", everywhere=True)) == 6
        for number in range(5):
            other.delete(f"s{number}")
        passes = []
        remove = FaissIndex.remove
        monkeypatch.setattr(
            FaissIndex, "remove", lambda index, rows: passes.append(rows) or remove(index, rows)
        )
        (hit,) = kept.search("weather", everywhere=True)
        assert hit.stored.message.text == "the weather of town5"
        assert len(passes) == 1
