"""Vectors that come and go, are saved and loaded, against a plain dictionary."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agentmem.retrieval.dense.vector_file_format import SavedVectors
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.retrieval.dense.vector_index import FaissIndex, as_unit
from tests.retrieval.retrieval_store import USER

DIMENSION = 6
ROWS = 30
numbers = st.integers(0, 10**6)
rows = st.lists(st.integers(0, ROWS - 1), max_size=8)


def vectors_of(seed, count):
    found = np.random.default_rng(seed).integers(-3, 4, (count, DIMENSION)).astype(np.float32)
    found[~found.any(axis=1)] = 1
    return as_unit(found, DIMENSION)


class Vectors(RuleBasedStateMachine):
    """A row has any number of vectors; the model is a list of them for each row."""

    @initialize()
    def begin(self):
        self.index = FaissIndex(DIMENSION)
        self.model = {}
        self.folder = Path(tempfile.mkdtemp(prefix="agentmem-vectors-"))
        self.files = VectorFiles(self.folder, "embedder")
        self.saved = None

    @rule(rows=rows, seed=numbers)
    def add(self, rows, seed):
        vectors = vectors_of(seed, len(rows))
        self.index.add(np.array(rows, np.int64), vectors)
        for row, vector in zip(rows, vectors, strict=True):
            self.model.setdefault(row, []).append(vector)

    @rule(rows=rows)
    def remove(self, rows):
        self.index.remove(set(rows))
        for row in rows:
            self.model.pop(row, None)

    @rule()
    def save(self):
        ids = self.index.rows.copy()
        saved = SavedVectors(
            message_ids=ids, content_hashes=ids.astype(np.uint64), vectors=self.index.vectors()
        )
        with self.files.turn():
            self.files.save(USER, saved)
        self.saved = {row: list(vectors) for row, vectors in self.model.items()}

    @rule()
    def load(self):
        if self.saved is None:
            assert self.files.load(USER) is None
            return
        _, loaded = self.files.load(USER)
        self.index = FaissIndex(DIMENSION)
        self.index.add(loaded.message_ids, loaded.vectors)
        self.model = {row: list(vectors) for row, vectors in self.saved.items()}

    @rule(seed=numbers, allowed=st.lists(st.booleans(), min_size=ROWS, max_size=ROWS))
    def search(self, seed, allowed):
        query = vectors_of(seed, 1)[0]

        scores = self.index.scores(query, np.array(allowed))

        for row in range(ROWS):
            if row not in self.model:
                assert np.isnan(scores[row])
                continue
            best = max(float(np.dot(one.astype(float), query)) for one in self.model[row])
            expected = best if allowed[row] else -np.inf
            assert scores[row] == pytest.approx(expected, abs=1e-6)

    @invariant()
    def counts_agree(self):
        if hasattr(self, "model"):
            assert len(self.index) == sum(map(len, self.model.values()))
            assert sorted(set(self.index.rows.tolist())) == sorted(self.model)

    def teardown(self):
        if hasattr(self, "folder"):
            shutil.rmtree(self.folder)


Vectors.TestCase.settings = settings(max_examples=100, stateful_step_count=25)
test_an_index_is_as_its_model = pytest.mark.slow(Vectors.TestCase)
