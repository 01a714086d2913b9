"""Searches a conversation in the ways that are compared, with the parts of the real retriever."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from talks import Question, Talk

from agentmem.protocols import Hit, Query, SearchScope
from agentmem.retrieval.dense.chunks import chunks_of
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.fusion.rrf import Fusion, Ranking, dense_query, rank
from agentmem.retrieval.index.ranking_mode import ranking_mode
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.retrieval.rows.growable_array import Float32s
from agentmem.retrieval.rows.message_table import IndexedMessage, MessageTable, indexed_message
from agentmem.types import BranchId, Scope, SessionId, StoredMessage

WAYS = ("hybrid", "lexical", "dense", "recent")
SESSION = SessionId(1)
LIMIT = 512


class Searcher:
    """One conversation, indexed as far as it had gone when something was asked."""

    def __init__(self, messages: Sequence[StoredMessage], embedder: Embedder) -> None:
        self._messages = messages
        self._embedder = embedder
        self._entries = entries_of(messages)
        self.message_table = MessageTable()
        self.lexical = LexicalIndex()
        self._vectors, self._rows = _embed(self._entries, embedder)

    def search(self, question: Question, way: str) -> list[Hit]:
        """Find what fits *question*, best first."""
        self._grow(question.until)
        if way == "recent":
            said = self._messages[question.until - 1 :: -1]
            return [Hit(stored=stored, score=stored.position) for stored in said]
        if way == "dense":
            dense = self._dense(question.text)
            best = np.argsort(-dense, kind="stable")[:LIMIT]
            return [Hit(stored=self._messages[row], score=float(dense[row])) for row in best]
        dense_scores = self._dense(question.text) if way == "hybrid" else None
        mode = ranking_mode(question.text, self.message_table)
        scores = mode.scores(self.lexical, question.text)
        asked, fusion = query(question.text), Fusion(priors=mode.priors)
        return self.hits(rank(self.message_table, scores, dense_scores, asked, fusion))

    def _grow(self, until: int) -> None:
        if until < len(self.message_table):
            # Asked from the beginning again, in another way.
            self.message_table, self.lexical = MessageTable(), LexicalIndex()
        entries = self._entries[len(self.message_table) : until]
        self.lexical.add(entries, self.message_table.add(entries))

    def hits(self, ranking: Ranking) -> list[Hit]:
        """Give the messages of a ranking."""
        return [
            Hit(
                stored=self._messages[row],
                score=float(ranking.scores[place]),
                ranks={name: int(ranks[place]) for name, ranks in ranking.ranks.items()},
            )
            for place, row in enumerate(ranking.rows)
        ]

    def _dense(self, text: str) -> Float32s:
        bare = dense_query(text, self.message_table.names_in(text))
        num_vectors = int(np.searchsorted(self._rows, len(self.message_table)))
        similar = self._vectors[:num_vectors] @ self._embedder.embed_query(bare)
        best = np.full(len(self.message_table), -np.inf, np.float32)
        np.maximum.at(best, self._rows[:num_vectors], similar)
        return best


class Remembering:
    """An embedder that keeps its vectors in a folder, so that a second run need not wait."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self._embedder = embedder
        self._folder = folder
        self.fingerprint = embedder.fingerprint
        self.dimension = embedder.dimension
        self.reads_unspaced = embedder.reads_unspaced
        self.split = embedder.split

    def embed_passages(self, texts: Sequence[str]) -> Float32s:
        return self._kept("\n".join(texts), lambda: self._embedder.embed_passages(texts))

    def embed_query(self, text: str) -> Float32s:
        return self._kept(f"query: {text}", lambda: self._embedder.embed_query(text))

    def _kept(self, key: str, make: Callable[[], Float32s]) -> Float32s:
        digest = hashlib.sha256(f"{self.fingerprint}\n{key}".encode()).hexdigest()
        path = self._folder / f"{digest}.npy"
        if not path.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            np.save(path, make())
        vectors: Float32s = np.load(path)
        return vectors


def searcher_of(talk: Talk, embedder: Embedder) -> Searcher:
    """Index a conversation."""
    return Searcher(talk.messages, embedder)


def query(text: str) -> Query:
    """Ask in the conversation's only session and branch."""
    return Query(
        text=text,
        search_scope=SearchScope(scope=Scope(), session_id=SESSION),
        session_id=SESSION,
        visible={BranchId(1): (1, 1 << 30)},
        limit=LIMIT,
    )


def entries_of(messages: Sequence[StoredMessage]) -> list[IndexedMessage]:
    """Give what can be found of *messages*, all of which say something."""
    found = [indexed_message(stored, SESSION) for stored in messages]
    return [entry for entry in found if entry is not None]


def _embed(entries: Sequence[IndexedMessage], embedder: Embedder) -> tuple[Float32s, list[int]]:
    chunks = [
        (row, chunk) for row, entry in enumerate(entries) for chunk in chunks_of(entry, embedder)
    ]
    return embedder.embed_passages([chunk.text for _, chunk in chunks]), [row for row, _ in chunks]
