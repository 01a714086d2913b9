"""
The in-memory index of one search scope, synchronized with the retrieval store.

Positions of a branch are contiguous and its head moves with them, so the index is up to date when
each branch is read up to its head. Words are indexed at once, vectors when they are embedded.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

import numpy as np

from agentmem.protocols import (
    BranchRange,
    Embedding,
    Hit,
    Query,
    RetrievalStore,
    SearchScope,
    first_messages,
)
from agentmem.retrieval.dense.database_vectors import vectors_of
from agentmem.retrieval.dense.embedder import Embedder
from agentmem.retrieval.dense.message_vectors import MessageVectors
from agentmem.retrieval.dense.vector_file_format import SavedVectors
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.retrieval.fusion.rrf import Fusion, Ranking, dense_query, rank
from agentmem.retrieval.index.passage_ranking import (
    BYTES_OF_PASSAGE,
    DIVIDED,
    MIN_CHARS,
    PassageCache,
    Passages,
    passage_similarities,
    rank_passages,
)
from agentmem.retrieval.index.ranking_mode import RankingMode, ranking_mode
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.retrieval.rows.content_hash import NO_SESSION, content_hash
from agentmem.retrieval.rows.growable_array import Float32s, Float64s, GrowableArray, Int64s
from agentmem.retrieval.rows.message_table import IndexedMessage, MessageTable, indexed_message
from agentmem.types import BranchId, MessageId, StoredMessage

_PAGE: Final = 1000
_BYTES_OF_ROW: Final = 1000
"""Approximate bytes of a message in the message table and in the lexical index."""

OnProgress = Callable[[int, int], None]
"""Progress callback: (done, total), in messages."""


class MessageIndex:
    """
    The index of one search scope. Its users hold *lock*.

    The first `catch_up` reads all messages; without an embedder there are no vectors.
    """

    def __init__(
        self,
        search_scope: SearchScope,
        retrieval_store: RetrievalStore,
        *,
        embedder: Embedder | None = None,
        files: VectorFiles | None = None,
    ) -> None:
        self.lock = threading.RLock()
        self._saving = threading.Lock()
        self.num_rounds = 0
        """Progress of the worker when all missing vectors were last requested."""
        self.search_scope = search_scope
        self._retrieval_store = retrieval_store
        self._embedder = embedder
        self._files = files
        self._begin()

    def _begin(self) -> None:
        self.message_table = MessageTable()
        self.content_hashes = GrowableArray(np.uint64)
        self._lexical = LexicalIndex()
        self._passage_cache = PassageCache(self._lexical)
        self._branches: dict[BranchId, BranchRange] = {}
        self.vectors: MessageVectors | None = None

    @property
    def num_bytes(self) -> int:
        """Approximate bytes of memory."""
        vectors = 0 if self.vectors is None else self.vectors.index.num_bytes
        passages = self._passage_cache.num_passages * BYTES_OF_PASSAGE
        return len(self.message_table) * _BYTES_OF_ROW + vectors + passages

    @property
    def has_vectors(self) -> bool:
        """Return whether there are any vectors."""
        return self.vectors is not None and len(self.vectors.index) > 0

    @property
    def num_embedded(self) -> int:
        """Number of messages with a vector."""
        return 0 if self.vectors is None else len(np.unique(self.vectors.index.rows))

    @property
    def pending(self) -> Sequence[MessageId]:
        """Return the messages without a vector."""
        return () if self.vectors is None else tuple(self.vectors.missing)

    def catch_up(
        self, on_progress: OnProgress | None = None, *, even_if_many: bool = False
    ) -> None:
        """
        Apply the changes since the last call: new messages and vectors, deleted branches.

        Args:
            on_progress: progress callback.
            even_if_many: whether to request vectors although many were missing recently.
        """
        branch_ranges = {
            branch_range.branch_id: branch_range
            for branch_range in self._retrieval_store.branch_ranges(self.search_scope)
        }
        if any(
            _is_another(self._branches.get(one), branch_range)
            for one, branch_range in branch_ranges.items()
        ):
            self._begin()
        if self.vectors is None and self._embedder is not None:
            self.vectors = vectors_of(
                self.search_scope, self._retrieval_store, self._embedder, self.message_table
            )
        is_first = not self._branches
        self._forget_branches(self._branches.keys() - branch_ranges.keys())
        total = sum(self._num_new(branch_range) for branch_range in branch_ranges.values())
        done = 0
        for branch_range in branch_ranges.values():
            if branch_range.parent is not None:
                self.message_table.note_subtask(branch_range.branch_id)
            for num in self._read(branch_range):
                done += num
                if on_progress is not None:
                    on_progress(done, total)
        if self.vectors is not None:
            if is_first and self._files is not None:
                self.vectors.load(self._files, self.message_table, self.content_hashes.values)
            self.vectors.catch_up(even_if_many=even_if_many or is_first)

    def query_text(self, text: str) -> str:
        """Return the part of a query text to embed."""
        return dense_query(text, self.message_table.names_in(text))

    def find(self, query: Query, vector: Float32s | None) -> list[Hit]:
        """
        Search for *query*; best first, with the current messages of the retrieval store.

        Messages deleted meanwhile are removed from the index and replaced by the next best.
        """
        while True:
            mode = ranking_mode(query, self.message_table)
            ranking = self._rank(query, vector, mode)
            message_ids = [
                MessageId(i) for i in self.message_table.message_ids[ranking.rows].tolist()
            ]
            stored = {
                one.id: one for one in self._retrieval_store.get(self.search_scope, message_ids)
            }
            gone = [message_id for message_id in message_ids if message_id not in stored]
            if not all(map(self._is_same, stored.values())):
                # Messages are immutable, so the database was replaced.
                self._begin()
                self.catch_up()
            elif gone:
                self._remove_leftovers(gone)
            else:
                hits = self._hits(query, ranking, [stored[one] for one in message_ids])
                divided = self._divided(hits, ranking, query, vector, mode)
                return list(first_messages(divided, query.limit))

    def remove(self, message_ids: Iterable[MessageId]) -> None:
        """Remove these messages, and their share in the term frequencies of neighbours."""
        known = [one for one in message_ids if self.message_table.row_of(one) is not None]
        self._passage_cache.forget(known)
        rows = self.message_table.remove(known)
        if not rows:
            return
        self._lexical.remove(rows)
        if self.vectors is not None:
            self.vectors.remove(known, rows)

    def count_as_unsaved(self) -> None:
        """Record that the file was removed."""
        if self.vectors is not None:
            self.vectors.num_changes += len(self.vectors.index)
            self.vectors.has_leftovers = False

    def save(self) -> None:
        """
        Save the vectors of messages that are in the store. Not to be called with the *lock*.

        Raises:
            IndexFileError: the file cannot be written.
        """
        if self._files is None or self.vectors is None:
            return
        with self._saving:
            self._save(self._files)

    def _save(self, files: VectorFiles) -> None:
        with self.lock:
            vectors = self.vectors
            assert vectors is not None, "an index lost its vectors"
            num_changes = vectors.num_changes
            had_leftovers, vectors.has_leftovers = vectors.has_leftovers, False
            saved = vectors.snapshot(self.message_table, self.content_hashes.values)
        try:
            with files.turn():
                kept = _still_held(self._retrieval_store, self.search_scope, saved)
                generation = files.save(self.search_scope, kept)
        except BaseException:
            vectors.has_leftovers |= had_leftovers
            raise
        with self.lock:
            vectors.num_changes -= num_changes
            vectors.generation = generation

    def _rank(self, query: Query, vector: Float32s | None, mode: RankingMode) -> Ranking:
        self.message_table.zone = query.zone
        lexical = mode.scores(self._lexical, query.text)
        dense = None
        if vector is not None and self.vectors is not None:
            dense = self.vectors.scores(vector, self.message_table.mask(query))
        reads = self._embedder is not None and self._embedder.reads_unspaced
        fusion = Fusion(unspaced=float(reads), priors=mode.priors)
        # As many are divided for any limit, so that a lower one gives the first of the same hits.
        most = replace(query, limit=max(query.limit, DIVIDED))
        return rank(self.message_table, lexical, dense, most, fusion)

    def _divided(
        self,
        hits: list[Hit],
        ranking: Ranking,
        query: Query,
        vector: Float32s | None,
        mode: RankingMode,
    ) -> list[Hit]:
        """Return *hits* with the passages of the long messages, best first."""
        if not (self.message_table.sizes[ranking.rows[:DIVIDED]] >= MIN_CHARS).any():
            return hits
        passages = self._passage_cache.divided(hits, query.text)
        if not passages:
            return hits
        terms = {int(ranking.rows[place]): one.terms for place, one in passages.items()}
        scores = mode.passage_scores(self._lexical, query.text, terms)
        moves = {
            "lexical": {place: scores[int(ranking.rows[place])] for place in passages},
            "dense": self._similarities(hits, passages, vector),
        }
        return rank_passages(hits, ranking, passages, moves, mode.priors)

    def _similarities(
        self, hits: Sequence[Hit], passages: Mapping[int, Passages], vector: Float32s | None
    ) -> dict[int, Float64s]:
        if vector is None or self._embedder is None or not self.has_vectors:
            return {}
        places = {hits[place].stored.id: place for place in passages}
        chunks: dict[MessageId, list[Embedding]] = {message_id: [] for message_id in places}
        embeddings = self._retrieval_store.embeddings(self._embedder.fingerprint, list(places))
        for one in embeddings:
            chunks[one.message_id].append(one)
        found = {
            place: passage_similarities(passages[place].ranges, chunks[message_id], vector)
            for message_id, place in places.items()
        }
        return {place: one for place, one in found.items() if one is not None}

    def _hits(self, query: Query, ranking: Ranking, messages: Sequence[StoredMessage]) -> list[Hit]:
        is_local = self.message_table.session_ids[ranking.rows] == query.session_id
        return [
            Hit(
                stored=stored,
                score=float(ranking.scores[place]),
                is_local=bool(is_local[place]),
                ranks={
                    name: int(ranks[place]) for name, ranks in ranking.ranks.items() if ranks[place]
                },
                times=int(ranking.times[place]),
            )
            for place, stored in enumerate(messages)
        ]

    def _is_same(self, stored: StoredMessage) -> bool:
        row = self.message_table.row_of(stored.id)
        assert row is not None, f"message {stored.id} was found but has no row"
        entry = indexed_message(stored, NO_SESSION, with_line=False)
        return entry is not None and content_hash(entry) == int(self.content_hashes.values[row])

    def _num_new(self, branch_range: BranchRange) -> int:
        known = self._branches.get(branch_range.branch_id)
        return branch_range.head - (branch_range.forked_at if known is None else known.head)

    def _read(self, branch_range: BranchRange) -> Iterable[int]:
        """Read new messages of a branch page by page; yield the number of messages of each page."""
        first = branch_range.head - self._num_new(branch_range) + 1
        for start in range(first, branch_range.head + 1, _PAGE):
            last = min(start + _PAGE - 1, branch_range.head)
            page = self._retrieval_store.read(
                self.search_scope, branch_range.branch_id, start, last
            )
            found = (indexed_message(stored, branch_range.session_id) for stored in page)
            self._add([entry for entry in found if entry is not None])
            self._branches[branch_range.branch_id] = replace(branch_range, head=last)
            yield last - start + 1
            if not page:
                # Positions are contiguous: a head far after the last message is corrupt.
                break

    def _add(self, entries: Sequence[IndexedMessage]) -> None:
        rows = self.message_table.add(entries)
        self.content_hashes.extend([content_hash(entry) for entry in entries])
        self._lexical.add(entries, rows)
        if self.vectors is not None:
            self.vectors.add([entry.message_id for entry in entries], rows)

    def _forget_branches(self, branch_ids: AbstractSet[BranchId]) -> None:
        """Remove all of them in one pass over the rows of the search scope."""
        if not branch_ids:
            return
        for branch_id in branch_ids:
            del self._branches[branch_id]
        is_gone = np.isin(self.message_table.branch_ids, np.fromiter(branch_ids, np.int64))
        rows: Int64s = np.flatnonzero(is_gone)
        self._remove_leftovers(MessageId(i) for i in self.message_table.message_ids[rows].tolist())

    def _remove_leftovers(self, message_ids: Iterable[MessageId]) -> None:
        """Remove messages that another process deleted; this process's file may still have them."""
        self.remove(message_ids)
        if self.vectors is not None:
            self.vectors.has_leftovers = True


def _still_held(
    retrieval_store: RetrievalStore, search_scope: SearchScope, saved: SavedVectors
) -> SavedVectors:
    """Omit vectors whose message was deleted, or whose content hash differs."""
    ids = np.unique(saved.message_ids)
    content_hashes = np.zeros(len(ids), np.uint64)
    is_held = np.zeros(len(ids), np.bool_)
    for start in range(0, len(ids), _PAGE):
        page = [MessageId(i) for i in ids[start : start + _PAGE].tolist()]
        for stored in retrieval_store.get(search_scope, page):
            if (entry := indexed_message(stored, NO_SESSION, with_line=False)) is not None:
                place = np.searchsorted(ids, stored.id)
                content_hashes[place] = content_hash(entry)
                is_held[place] = True
    places = np.searchsorted(ids, saved.message_ids)
    keep = is_held[places] & (content_hashes[places] == saved.content_hashes)
    return SavedVectors(
        message_ids=saved.message_ids[keep],
        content_hashes=saved.content_hashes[keep],
        vectors=saved.vectors[keep],
    )


def _is_another(known: BranchRange | None, now: BranchRange) -> bool:
    """Return whether a branch was replaced since it was read: heads only move forward."""
    if known is None:
        return False
    return (
        now.head < known.head
        or now.session_id != known.session_id
        or now.forked_at != known.forked_at
        or now.parent != known.parent
    )
