"""
Lexical search: BM25 with term frequencies smoothed over neighbouring messages.

An answer rarely repeats the words of its question. So a message counts the words of its neighbours
within one sitting, with a weight that decays per step (`neighbour_smoothing`). The index has plain
posting lists; smoothing is applied at query time. So adding a message costs its own words only, and
the index does not depend on the batches in which it was filled.
"""

from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC

import numpy as np

from agentmem.retrieval.lexical.neighbour_smoothing import (
    NEAR,
    SMOOTHINGS,
    Neighbours,
    Smoothing,
)
from agentmem.retrieval.rows.growable_array import Float32s, Float64s, GrowableArray, Int64s
from agentmem.retrieval.rows.message_table import IndexedMessage
from agentmem.retrieval.text.analyzer import Analyzer
from agentmem.types.moments import MONTHS

K1 = 2.0
B = 0.75


@dataclass(frozen=True, slots=True)
class PassageTerms:
    """The terms of a passage."""

    counts: Mapping[str, int]
    num_terms: int

    def count(self, term: str) -> int:
        """Return how often it has *term*."""
        return self.counts.get(term, 0)


@dataclass(frozen=True, slots=True)
class _Match:
    """A term of a query that is indexed, with its stems and spellings."""

    same: Sequence[str]
    weight: float
    """Its inverse document frequency, and its frequency in the query."""

    rows: Int64s
    counts: Float64s
    near: Float64s
    """The count of each row with what its neighbours lend: (all rows,)."""


class LexicalIndex:
    """
    The inverted index of all rows. Not thread-safe.

    Rows are those of a `MessageTable`, and all must be added, in its order.
    """

    def __init__(self) -> None:
        self._analyzer = Analyzer()
        self._postings: dict[str, _Postings] = {}
        self._terms: list[tuple[str, ...]] = []
        self._languages: list[str | None] = []
        self._num_of_language: Counter[str] = Counter()
        self._lengths = GrowableArray(np.float64)
        self._smoothed = {smoothing: GrowableArray(np.float64) for smoothing in SMOOTHINGS}
        self._num_alive = 0
        self._neighbours = Neighbours()

    def __len__(self) -> int:
        """Return the number of rows, removed ones included."""
        return len(self._lengths)

    def add(self, entries: Sequence[IndexedMessage], rows: range) -> None:
        """Index *entries* as *rows*, which continue the previous ones."""
        assert rows.start == len(self), f"row {rows.start} added after row {len(self) - 1}"
        for row, entry in zip(rows, entries, strict=True):
            words = self._analyzer.passage(searched_text(entry))
            counts = Counter(words.terms)
            for term, count in counts.items():
                self._postings.setdefault(term, _Postings()).append(row, count)
            self._terms.append(tuple(counts))
            self._languages.append(words.language)
            if words.language is not None:
                self._num_of_language[words.language] += 1
            self._neighbours.add(entry)
            self._add_length(row, float(len(words.terms)))
        self._num_alive += len(rows)

    def remove(self, rows: Sequence[int]) -> None:
        """Remove these rows, and their share in the term frequencies of neighbours."""
        for row in rows:
            for term in self._terms[row]:
                self._postings[term].remove(row)
                if not self._postings[term].num_alive:
                    del self._postings[term]
            if (language := self._languages[row]) is not None:
                self._num_of_language[language] -= 1
            self._num_alive -= bool(self._terms[row])
            self._terms[row] = ()
            self._languages[row] = None
            self._lengths.values[row] = 0
        near = self._neighbours.around(rows)
        self._neighbours.remove(rows)
        for smoothing, smoothed in self._smoothed.items():
            for row in near:
                length = self._neighbours.smoothed(row, self._lengths.values, smoothing)
                smoothed.values[row] = length

    def scores(
        self, text: str, smoothing: Smoothing = NEAR, *, is_sublinear: bool = False
    ) -> Float32s:
        """
        Return the score of each row for a query: (rows,), 0 without a matching word nearby.

        Args:
            text: the query.
            smoothing: one of `SMOOTHINGS`.
            is_sublinear: whether a term counts with the square root of its frequency in the query,
                as suits long queries.
        """
        scores = np.zeros(len(self))
        norms = self._norms(self._smoothed[smoothing].values, smoothing)
        for term in self._matches(text, smoothing, is_sublinear=is_sublinear):
            found = np.flatnonzero(term.near)
            count = term.near[found]
            scores[found] += term.weight * count * (K1 + 1) / (count + norms[found])
        return scores.astype(np.float32)

    def passage_scores(
        self,
        text: str,
        passages: Mapping[int, Sequence[PassageTerms]],
        smoothing: Smoothing = NEAR,
        *,
        is_sublinear: bool = False,
    ) -> dict[int, Float64s]:
        """
        Return for some rows the scores of their passages: (passages,), relative to the row's score.

        A passage counts its own words, those of the rest of its message as far as these are lent,
        and those of the neighbouring messages.

        Args:
            text: the query.
            passages: the terms of the passages of these rows.
            smoothing: one of `SMOOTHINGS`.
            is_sublinear: as for `scores`.
        """
        rows = np.fromiter(passages, np.int64, len(passages))
        of = np.repeat(np.arange(len(rows)), [len(parts) for parts in passages.values()])
        parts = [part for parts in passages.values() for part in parts]
        lengths = self._lengths.values[rows]
        smoothed = self._smoothed[smoothing].values[rows]
        share = smoothing.within * smoothing.lent(lengths) / np.maximum(lengths, 1.0)
        own = np.array([part.num_terms for part in parts], np.float64)
        # The speaker and the date are indexed with the text, and count for each passage.
        own += np.maximum(lengths - np.bincount(of, own, len(rows)), 0.0)[of]
        rest = own + share[of] * np.maximum(lengths[of] - own, 0.0)
        norms = self._norms(rest + (smoothed - lengths)[of], smoothing)
        row_norms = self._norms(smoothed, smoothing)
        found = np.zeros(len(parts))
        for term in self._matches(text, smoothing, is_sublinear=is_sublinear):
            near, whole = term.near[rows], np.zeros(len(self))
            whole[term.rows] = term.counts
            whole = whole[rows]
            own = np.array([sum(map(part.count, term.same)) for part in parts], np.float64)
            own += np.maximum(whole - np.bincount(of, own, len(rows)), 0.0)[of]
            count = own + share[of] * np.maximum(whole[of] - own, 0.0) + (near - whole)[of]
            found += term.weight * (K1 + 1) * count / (count + norms)
            found -= (term.weight * (K1 + 1) * near / (near + row_norms))[of]
        ends = np.cumsum([len(parts) for parts in passages.values()])
        return dict(zip(passages, np.split(found, ends[:-1]), strict=True))

    def passage_terms(self, text: str) -> PassageTerms:
        """Return the terms of a passage, for `passage_scores`."""
        terms = self._analyzer.passage(text).terms
        return PassageTerms(counts=Counter(terms), num_terms=len(terms))

    def _norms(self, smoothed: Float64s, smoothing: Smoothing) -> Float64s:
        """Return the length normalization of rows or passages of these smoothed lengths."""
        total = max(float(self._smoothed[smoothing].values.sum()), 1.0)
        norms: Float64s = smoothed * (B / total) * self._num_alive
        return K1 * (1 - B + norms)

    def _matches(self, text: str, smoothing: Smoothing, *, is_sublinear: bool) -> Iterator[_Match]:
        """Yield the terms of a query that are indexed."""
        lengths = self._lengths.values
        terms = Counter(self._analyzer.query(text, self._common_languages()))
        for same, times in terms.items() if self._num_alive else ():
            rows, counts = self._find(same)
            if not len(rows):
                continue
            idf = np.log1p((self._num_alive - len(rows) + 0.5) / (len(rows) + 0.5))
            near = np.zeros(len(self))
            near[rows] = counts
            lent = counts * (smoothing.lent(lengths[rows]) / lengths[rows])
            for which, borrowers, weight in self._neighbours.smoothing_links(rows, smoothing):
                near[borrowers] += weight * lent[which]
            times_asked = float(np.sqrt(times)) if is_sublinear else float(times)
            yield _Match(same, times_asked * float(idf), rows, counts, near)

    def _find(self, terms: Sequence[str]) -> tuple[Int64s, Float64s]:
        """Return the rows with one of *terms*, each once, and their term frequencies."""
        found = [self._postings[term] for term in terms if term in self._postings]
        if not found:
            return np.zeros(0, np.int64), np.zeros(0)
        arrays = [one.arrays() for one in found]
        rows = np.concatenate([rows for rows, _ in arrays])
        counts = np.concatenate([counts for _, counts in arrays])
        if len(found) > 1:
            rows, places = np.unique(rows, return_inverse=True)
            counts = np.bincount(places, weights=counts)
        return rows, counts

    def _common_languages(self) -> list[str]:
        """Return the languages of more than a stray text, the most common first."""
        least = max(1, self._num_of_language.total() // 50)
        found = sorted(self._num_of_language.items(), key=lambda item: (-item[1], item[0]))
        return [language for language, num in found if num >= least]

    def _add_length(self, row: int, length: float) -> None:
        self._lengths.append(length)
        lengths = self._lengths.values
        earlier = self._neighbours.before(row)
        for smoothing, growing in self._smoothed.items():
            growing.append(length)
            smoothed = growing.values
            lent = smoothing.lent(lengths[[row, *earlier]])
            weights = zip(earlier, lent[1:], smoothing.before, smoothing.after, strict=False)
            for other, borrowed, before, after in weights:
                smoothed[row] += before * borrowed
                smoothed[other] += after * lent[0]


class _Postings:
    """
    The posting list of a term: rows in ascending order, and the frequency in each.

    A removed row stays with a count of 0 until half of the list is removed: so a removal costs one
    binary search, whatever the length of the list.
    """

    __slots__ = ("counts", "num_alive", "rows")

    def __init__(self) -> None:
        self.rows = array("i")
        self.counts = array("i")
        self.num_alive = 0

    def append(self, row: int, count: int) -> None:
        self.rows.append(row)
        self.counts.append(count)
        self.num_alive += 1

    def remove(self, row: int) -> None:
        """Remove *row*, which is in the list."""
        self.counts[bisect_left(self.rows, row)] = 0
        self.num_alive -= 1
        if 2 * self.num_alive < len(self.rows):
            counts = np.array(self.counts)
            self.rows = array("i", np.array(self.rows)[counts > 0].tobytes())
            self.counts = array("i", counts[counts > 0].tobytes())

    def arrays(self) -> tuple[Int64s, Float64s]:
        """Return the rows and the term frequencies."""
        rows, counts = np.array(self.rows, np.int64), np.array(self.counts, np.float64)
        if self.num_alive < len(rows):
            rows, counts = rows[counts > 0], counts[counts > 0]
        return rows, counts


def searched_text(entry: IndexedMessage) -> str:
    """Return the searchable text: speaker, text, and the date, in words and in ISO 8601."""
    at = entry.created_at.astimezone(UTC)
    return f"{entry.speaker} {entry.text} {MONTHS[at.month - 1]} {at:%Y-%m-%d}"
