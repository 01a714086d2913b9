"""
Reciprocal rank fusion of the lexical and the dense ranking.

Each list includes the query boosts; a row scores 1 / (10 + rank) per list. Against a sum of
z-scores that is +.004 of recall over the budgets of the benchmark, with k = 60 instead of 10 it is
-.013; and it does not depend on the distribution of an embedder's scores.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from agentmem.protocols import Query
from agentmem.retrieval.fusion.assistant_logs import LogPriors
from agentmem.retrieval.fusion.query_boosts import DEFAULT_BOOSTS, QueryBoost
from agentmem.retrieval.rows.growable_array import Bools, Float32s, Float64s, Int64s
from agentmem.retrieval.rows.message_table import MessageTable
from agentmem.retrieval.text.analyzer import foreign_share, unspaced_share
from agentmem.types import Role
from agentmem.types.words import stands_alone

_K = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """
    Parameters of the fusion.

    Args:
        boosts: the query boosts.
        unspaced: weight of the dense list for a query in a non-Latin script, such as Chinese or
            Hindi, interpolated for mixed ones. 0 for an English embedder, which would rank texts
            that it cannot read arbitrarily.
        priors: of a log of a user and an assistant; None for a chat of named people.
    """

    boosts: tuple[QueryBoost, ...] = DEFAULT_BOOSTS
    unspaced: float = 0.0
    priors: LogPriors | None = None

    def dense_weight(self, text: str) -> float:
        """Return the weight of the dense list for the query *text*; the lexical one has 1."""
        weight = 1.0 if self.priors is None else self.priors.dense
        return weight * (1 - (1 - self.unspaced) * foreign_share(text))


DEFAULT_FUSION = Fusion()


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedList:
    """One of the fused lists."""

    priorities: Float64s  # (n,)
    """Standard scores with their boosts."""

    spread: float
    """Standard deviation of the scores before they were standardized."""

    weights: Float64s  # (n,)
    is_silent: Bools  # (n,)
    """Whether a row has no match in this list."""

    def places(self) -> Int64s:
        """Return the rank of each row, from 1: (n,)."""
        return _places(self.priorities, self.is_silent)

    def at(self, rows: Int64s) -> "RankedList":
        """Return the list of these *rows* only."""
        return replace(
            self,
            priorities=self.priorities[rows],
            weights=self.weights[rows],
            is_silent=self.is_silent[rows],
        )


def fused(lists: Iterable[RankedList]) -> Float64s:
    """Return the sum of weight / (10 + rank) over *lists*: (n,)."""
    scores: Float64s = np.sum([one.weights / (_K + one.places()) for one in lists], axis=0)
    return scores


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rows, best first, at most the limit of the query."""

    rows: Int64s  # (n,)
    scores: Float32s  # (n,), falling
    lists: Mapping[str, RankedList]
    """The fused lists, with these rows."""

    ranks: Mapping[str, Int64s]
    """For ``lexical`` and ``dense`` the rank of each row in that list, from 1; 0 for none."""

    times: Int64s
    """Number of visible duplicates of each row, which is the newest of them."""


def rank(
    message_table: MessageTable,
    lexical: Float32s,
    dense: Float32s | None,
    query: Query,
    fusion: Fusion = DEFAULT_FUSION,
) -> Ranking:
    """
    Rank the visible rows with a lexical or dense match for *query*.

    A row without a vector is in the dense list at the position of its lexical score. Of duplicates
    the newest is returned, with the best rank among them.

    Args:
        message_table: the rows.
        lexical: the BM25 score of each row: (rows,).
        dense: the inner product of each row with the query: (rows,). NaN for a row without a
            vector, -inf for one that a limited search did not reach; None without any vectors.
        query: the query and its scope.
        fusion: the parameters.
    """
    rows = _visible_rows(message_table, query)
    boosts = _boosts(query.text, message_table, fusion, rows)
    by_words, spread = _standard(lexical[rows].astype(np.float64))
    is_candidate: Bools = lexical[rows] > 0
    lists = {"lexical": _lexical_list(by_words + boosts, spread, is_candidate)}
    is_ranked = {"lexical": is_candidate}
    if dense is not None:
        by_meaning, spread = _standard(dense[rows].astype(np.float64))
        is_embedded = ~np.isnan(dense[rows])
        is_ranked["dense"] = np.isfinite(dense[rows])
        lists["dense"] = RankedList(
            priorities=_beside_words(by_meaning, by_words, is_embedded) + boosts,
            spread=spread,
            weights=_dense_weights(message_table, rows, query.text, fusion),
            is_silent=np.zeros(len(rows), np.bool_),
        )
        is_candidate = is_candidate | (is_embedded & (by_meaning >= 0))  # a single one is the mean
    places = {name: np.where(is_ranked[name], one.places(), 0) for name, one in lists.items()}
    scores = fused(lists.values())
    lines = _lines(message_table, rows, scores, np.flatnonzero(is_candidate))
    chosen = _best(lines.scores, np.arange(len(lines.scores)), max(query.limit, 0))
    best = lines.best[chosen]
    return Ranking(
        rows=rows[lines.newest[chosen]],
        scores=scores[best].astype(np.float32),
        lists={name: one.at(best) for name, one in lists.items()},
        ranks={name: place[best].astype(np.int64) for name, place in places.items()},
        times=lines.times[chosen],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lines:
    """Deduplicated candidates, by indices of rows."""

    newest: Int64s
    best: Int64s
    scores: Float64s
    times: Int64s


def _lines(
    message_table: MessageTable, rows: Int64s, scores: Float64s, candidates: Int64s
) -> _Lines:
    """Group duplicates among *candidates*, in the order of the newest of each group."""
    of = message_table.lines[rows]
    times = np.bincount(of, minlength=1)
    has_copies = times[of[candidates]] > 1
    if not has_copies.any():
        return _Lines(
            newest=candidates,
            best=candidates,
            scores=scores[candidates],
            times=np.ones(len(candidates), np.int64),
        )
    created = message_table.created[rows]
    order = np.arange(len(rows))
    if (np.diff(created) < 0).any():
        order = np.argsort(created, kind="stable")
    # Of several values for one index the last one is kept.
    newest = np.zeros(len(times), np.int64)
    newest[of[order]] = order
    best = newest.copy()
    best[of[candidates]] = candidates
    copies = candidates[has_copies]
    rising = copies[np.argsort(scores[copies], kind="stable")]
    best[of[rising]] = rising
    is_found = np.zeros(len(rows), np.bool_)
    is_found[newest[of[candidates]]] = True
    found = np.flatnonzero(is_found)
    lines = of[found]
    return _Lines(newest=found, best=best[lines], scores=scores[best[lines]], times=times[lines])


def dense_query(text: str, speakers: Iterable[str]) -> str:
    """
    Return the query text to embed: without the names of speakers.

    A name moves the vector towards all messages of that speaker: with it, dense recall falls from
    .78 to .69. *speakers* are best those of `MessageTable.names_in`.
    """
    bare = text
    for name in sorted(set(speakers) - set(Role), key=lambda name: (-len(name), name)):
        # Without spaces the end of a name is unknown.
        if unspaced_share(name) > 0:
            bare = bare.replace(name, " ")
        else:
            named = re.compile(rf"{re.escape(name)}(?:['’]s)?")  # noqa: RUF001
            bare = named.sub(lambda found: " " if stands_alone(found) else found[0], bare)
    bare = re.sub(r"\s+([?.!,;:])", r"\1", " ".join(bare.split()))
    return bare if any(letter.isalnum() for letter in bare) else text


def _lexical_list(priorities: Float64s, spread: float, is_candidate: Bools) -> RankedList:
    # Without a match the boosts alone would form a list with the weight of the dense one.
    weights = np.full(len(priorities), float(is_candidate.any()))
    return RankedList(
        priorities=priorities, spread=spread, weights=weights, is_silent=~is_candidate
    )


def _dense_weights(
    message_table: MessageTable, rows: Int64s, text: str, fusion: Fusion
) -> Float64s:
    weights = np.full(len(rows), fusion.dense_weight(text))
    return weights * cheapness(message_table.sizes[rows]) if fusion.priors is None else weights


def _visible_rows(message_table: MessageTable, query: Query) -> Int64s:
    """Return the visible rows in the order of their messages, not of their insertion."""
    rows = np.flatnonzero(message_table.mask(query))
    message_ids = message_table.message_ids[rows]
    return rows[np.argsort(message_ids)] if (np.diff(message_ids) < 0).any() else rows


def _boosts(text: str, message_table: MessageTable, fusion: Fusion, rows: Int64s) -> Float64s:
    total = np.zeros(len(rows))
    for boost in fusion.boosts:
        if (one := boost.of_rows(text, message_table)) is not None:
            total += one[rows]
    return total if fusion.priors is None else total + fusion.priors.of_rows(message_table, rows)


def cheapness(sizes: Int64s | Float64s) -> Float64s:
    """
    Return the length factor of each row, about 1 for 120 characters: short rows cost less budget.

    BM25 normalizes by length already, so this is for the dense list only: +.003 over the budgets,
    and about the same with an exponent of 0.2 to 0.5.
    """
    weights: Float64s = ((sizes + 40) / 160) ** -0.3
    return weights


def _standard(scores: Float64s) -> tuple[Float64s, float]:
    """Return z-scores, the lowest one for -inf, and the standard deviation."""
    finite = scores[np.isfinite(scores)]
    if not len(finite):
        return np.zeros(len(scores)), 1.0
    clipped = np.where(np.isneginf(scores), finite.min(), scores)
    spread = float(finite.std()) or 1.0
    standard: Float64s = (clipped - finite.mean()) / spread
    return standard, spread


def _beside_words(by_meaning: Float64s, by_words: Float64s, is_embedded: Bools) -> Float64s:
    """
    Impute dense scores of rows without a vector from their lexical z-scores.

    The embedded rows may be few and all good: they are scaled to the mean and the spread of their
    lexical scores, so that being embedded early is not a disadvantage.
    """
    if is_embedded.all() or not is_embedded.any():
        return by_meaning if is_embedded.any() else by_words
    words = by_words[is_embedded]
    spread = float(words.std()) or 1.0
    return np.where(is_embedded, by_meaning * spread + words.mean(), by_words)


def _places(scores: Float64s, is_silent: Bools) -> Int64s:
    """
    Return the rank of each score, 1 for the highest; ties rank the later row first.

    Rows without a match in the list share the last rank of their score: else a list without matches
    would rank the newest messages first.
    """
    places = np.empty(len(scores), np.int64)
    places[_best_first(scores)] = np.arange(1, len(scores) + 1)
    last = len(scores) - np.searchsorted(np.sort(scores), scores[is_silent], side="left")
    places[is_silent] = last
    return places


def _best(scores: Float64s, candidates: Int64s, limit: int) -> Int64s:
    """Return the *limit* best of *candidates*, best first."""
    if 0 < limit < len(candidates):
        # Most need not be sorted; ties with the last one must be compared.
        least = np.partition(scores[candidates], len(candidates) - limit)[-limit]
        candidates = candidates[scores[candidates] >= least]
    return candidates[_best_first(scores[candidates])][:limit]


def _best_first(scores: Float64s) -> Int64s:
    """Return the indices of *scores*, highest first; ties put the later first."""
    return len(scores) - 1 - np.argsort(-scores[::-1], kind="stable")
