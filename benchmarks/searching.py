"""Searches a conversation in the ways that are compared, with the parts of the real retriever."""

import hashlib
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from talks import Question, Talk

from agentmem.protocols import Embedding, Hit, Query, SearchScope
from agentmem.retrieval.dense.chunks import chunks_of
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.fusion.rrf import Fusion, Ranking, dense_query, rank
from agentmem.retrieval.index.passage_ranking import (
    PassageCache,
    passage_similarities,
    rank_passages,
)
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

    def __init__(self, messages: Sequence[StoredMessage], embedder: Embedder | None) -> None:
        self._entries = entries_of(messages)
        found = {entry.message_id for entry in self._entries}
        self._messages = [stored for stored in messages if stored.id in found]
        self._embedder = embedder
        self.message_table = MessageTable()
        self.lexical = LexicalIndex()
        self._passages = PassageCache(self.lexical)
        self._chunks: list[Embedding] = []
        if embedder is not None:
            self._chunks = _embed(self._entries, embedder)
            self._vectors = np.stack([np.frombuffer(one.vector, "<f4") for one in self._chunks])
        rows = {stored.id: row for row, stored in enumerate(self._messages)}
        self._rows = [rows[one.message_id] for one in self._chunks]

    def search(self, question: Question, way: str) -> list[Hit]:
        """Find what fits *question*, best first."""
        until = bisect_right(self._messages, question.until, key=lambda one: one.position)
        self._grow(until)
        if way == "recent":
            said = self._messages[:until][::-1]
            return [Hit(stored=stored, score=stored.position) for stored in said]
        if way == "dense":
            dense = self._dense(question.text)
            best = np.argsort(-dense, kind="stable")[:LIMIT]
            return [Hit(stored=self._messages[row], score=float(dense[row])) for row in best]
        dense_scores = self._dense(question.text) if way == "hybrid" else None
        asked = query(question.text)
        mode = ranking_mode(asked, self.message_table)
        scores = mode.scores(self.lexical, question.text)
        fusion = Fusion(priors=mode.priors)
        ranking = rank(self.message_table, scores, dense_scores, asked, fusion)
        vector = self._vector(question.text) if way == "hybrid" else None
        return self._divided(self.hits(ranking), ranking, asked, vector)

    def _grow(self, until: int) -> None:
        if until < len(self.message_table):
            # Asked from the beginning again, in another way.
            self.message_table, self.lexical = MessageTable(), LexicalIndex()
            self._passages = PassageCache(self.lexical)
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

    def _divided(
        self, hits: list[Hit], ranking: Ranking, asked: Query, vector: Float32s | None
    ) -> list[Hit]:
        mode = ranking_mode(asked, self.message_table)
        passages = self._passages.divided(hits, asked.text)
        if not passages:
            return hits
        terms = {int(ranking.rows[place]): one.terms for place, one in passages.items()}
        scores = mode.passage_scores(self.lexical, asked.text, terms)
        moves = {"lexical": {place: scores[int(ranking.rows[place])] for place in passages}}
        if vector is not None:
            similar = {
                place: passage_similarities(
                    one.ranges, self._chunks_of(int(ranking.rows[place])), vector
                )
                for place, one in passages.items()
            }
            moves["dense"] = {place: one for place, one in similar.items() if one is not None}
        return rank_passages(hits, ranking, passages, moves, mode.priors)

    def _chunks_of(self, row: int) -> list[Embedding]:
        first, end = np.searchsorted(self._rows, [row, row + 1])
        return self._chunks[first:end]

    def _vector(self, text: str) -> Float32s:
        assert self._embedder is not None, "a dense search without an embedder"
        return self._embedder.embed_query(dense_query(text, self.message_table.names_in(text)))

    def _dense(self, text: str) -> Float32s:
        num_vectors = int(np.searchsorted(self._rows, len(self.message_table)))
        similar = self._vectors[:num_vectors] @ self._vector(text)
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


def searcher_of(talk: Talk, embedder: Embedder | None) -> Searcher:
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
    """Give what can be found of *messages*: not the calls of tools."""
    found = [indexed_message(stored, SESSION) for stored in messages]
    return [entry for entry in found if entry is not None]


def _embed(entries: Sequence[IndexedMessage], embedder: Embedder) -> list[Embedding]:
    chunks = [(entry, chunk) for entry in entries for chunk in chunks_of(entry, embedder)]
    vectors = embedder.embed_passages([chunk.text for _, chunk in chunks])
    return [
        Embedding(
            message_id=entry.message_id,
            first=chunk.first,
            last=chunk.last,
            vector=vector.astype("<f4").tobytes(),
        )
        for (entry, chunk), vector in zip(chunks, vectors, strict=True)
    ]
