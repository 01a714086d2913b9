"""An index that followed what happened finds what one finds that was read now."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from agentmem.protocols import Query, SearchScope
from agentmem.retrieval import HybridRetriever, RecallSettings
from agentmem.testing import HashingEmbedder
from agentmem.types import SessionId
from tests.retrieval.retrieval_store import SCOPE, USER, ListRetrievalStore

WORDS = ("hotel", "train", "museum", "red", "blue", "Lisbon", "Ana", "ok")
numbers = st.integers(0, 100)
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=4).map(" ".join)


def pick(items, number):
    return sorted(items)[number % len(items)]


class InStep(RuleBasedStateMachine):
    """What happens to a retrieval store, while one retriever follows and others begin."""

    @initialize(by_words=st.booleans())
    def begin(self, by_words):
        self.folder = Path(tempfile.mkdtemp(prefix="agentmem-index-"))
        self.retrieval_store = ListRetrievalStore(self.folder)
        self.embedder = None if by_words else HashingEmbedder(dimension=16)
        self.recall = self.open()
        self.deleted = set()
        self.has_secrets = False
        for session in (1, 2, 3):
            self.retrieval_store.append(self.retrieval_store.branch(session), "hotel", "red train")

    def open(self):
        # Two indexes of some messages do not fit: they are let go and read again.
        settings = RecallSettings(max_bytes=20000, save_after=3)
        return HybridRetriever(self.embedder, settings=settings).open_index(self.retrieval_store)

    @rule(session=st.integers(1, 3))
    def fork_or_begin(self, session):
        lines = self.retrieval_store.lines
        parent = next((b for b, line in lines.items() if line.session_id == session), None)
        at = lines[parent].head if parent else 0
        self.retrieval_store.branch(session, parent=parent, forked_at=at)

    @rule(said=st.lists(texts, min_size=1, max_size=4), number=numbers)
    def say(self, said, number):
        if self.retrieval_store.lines:
            self.retrieval_store.append(pick(self.retrieval_store.lines, number), *said)

    @rule(number=numbers, tell=st.booleans())
    def empty_one(self, number, tell):
        ids = [
            stored.id for line in self.retrieval_store.lines.values() for stored in line.messages
        ]
        if ids:
            one = pick(ids, number)
            self.retrieval_store.empty(one)
            self.deleted.add(one)
            if tell:
                self.recall.forget(SCOPE, [one])
            self.has_secrets |= not tell

    @rule(number=numbers, tell=st.booleans())
    def drop_branch(self, number, tell):
        if len(self.retrieval_store.lines) > 2:
            gone = self.retrieval_store.drop(pick(self.retrieval_store.lines, number))
            self.deleted.update(gone)
            if tell:
                self.recall.forget(SCOPE, gone)

    @rule(text=texts, session=st.integers(1, 3), alone=st.booleans(), limit=st.integers(1, 8))
    def search(self, text, session, alone, limit):
        search_scope = SearchScope(scope=SCOPE, session_id=SessionId(session)) if alone else USER
        visible = {
            branch: (1, max(1, line.head - 1))
            for branch, line in self.retrieval_store.lines.items()
            if line.session_id == session
        }
        query = Query(
            text=text,
            search_scope=search_scope,
            session_id=SessionId(session),
            visible=visible,
            limit=limit,
        )

        # Else something could be embedded between this search and the next.
        assert self.recall.wait(30)
        hits = self.recall.search(query)

        fresh = self.open()
        expected = fresh.search(query)
        fresh.close()
        assert {hit.stored.id for hit in hits}.isdisjoint(self.deleted)
        if self.has_secrets:
            # What another process emptied is noticed when it would be a hit; until then its words
            # still count as common, and those of its neighbours as near.
            assert len(hits) <= limit
        else:
            assert [(h.stored.id, h.score, h.ranks) for h in hits] == [
                (h.stored.id, h.score, h.ranks) for h in expected
            ]

    @rule()
    def begin_anew(self):
        self.recall.close()
        self.recall = self.open()
        self.has_secrets = False

    def teardown(self):
        if hasattr(self, "recall"):
            self.recall.close()
            shutil.rmtree(self.folder)


InStep.TestCase.settings = settings(max_examples=100, stateful_step_count=25)
test_an_index_stays_in_step = pytest.mark.slow(InStep.TestCase)
