"""
Ranking of the passages of long messages, after that of the messages.

Messages are indexed as a whole, and the best of them are divided when they are found: with 128 of
them the recall is that of an index of all passages (`benchmarks/bench_retrieval.py`), which would
have three to six times the rows. A passage has the priority of its message, moved by how much
better or worse it matches, by its length and by its place.
"""

import re
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from agentmem.protocols import Embedding, Hit
from agentmem.retrieval.fusion.assistant_logs import LogPriors
from agentmem.retrieval.fusion.rrf import Ranking, cheapness, fused
from agentmem.retrieval.lexical.bm25 import LexicalIndex, PassageTerms
from agentmem.retrieval.rows.growable_array import Float32s, Float64s, Int64s
from agentmem.types import MessageId
from agentmem.types.passages import TextRange, split_passages

DIVIDED: Final = 128
"""Number of the best messages of which the long ones are divided."""

MIN_CHARS: Final = 200
"""Minimum characters of a message of several passages, in any script."""

_MAX_PASSAGES: Final = 64
"""Maximum passages of a message that are compared: those with most of the words of the query."""

_REMEMBERED: Final = 2048
"""Passages that stay analyzed: those of a few queries."""

BYTES_OF_PASSAGE: Final = 8_000
"""Approximate bytes of memory of an analyzed passage."""

_WORD: Final = re.compile(r"\w{3,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """The compared passages of a message."""

    ranges: tuple[TextRange, ...]
    terms: tuple[PassageTerms, ...]
    is_all: bool
    """Whether these are all of its passages."""


class PassageCache:
    """Divides messages into passages, and remembers some of these. Not thread-safe."""

    def __init__(self, lexical: LexicalIndex) -> None:
        self._lexical = lexical
        self._known: OrderedDict[MessageId, Passages] = OrderedDict()
        self.num_passages = 0

    def forget(self, message_ids: Iterable[MessageId]) -> None:
        """Forget the words of deleted messages."""
        for message_id in message_ids:
            self._drop(self._known.pop(message_id, None))

    def divided(self, hits: Sequence[Hit], text: str) -> dict[int, Passages]:
        """Return the passages of those of the best *hits* that have several, by their place."""
        found: dict[int, Passages] = {}
        for place, hit in enumerate(hits[:DIVIDED]):
            passages = self._passages(hit, text)
            if len(passages.ranges) > 1:
                found[place] = passages
        return found

    def _passages(self, hit: Hit, text: str) -> Passages:
        message = hit.stored.message.memory_text
        if len(message) < MIN_CHARS:
            return Passages(ranges=((0, len(message)),), terms=(), is_all=True)
        known = self._known.get(hit.stored.id)
        if known is not None:
            self._known.move_to_end(hit.stored.id)
            return known
        ranges = split_passages(message)
        chosen = _with_most_words(message, ranges, text)
        # A message of one passage is not divided, so its terms are not needed.
        terms = [
            self._lexical.passage_terms(message[start:end])
            for start, end in chosen
            if len(ranges) > 1
        ]
        found = Passages(ranges=chosen, terms=tuple(terms), is_all=chosen == ranges)
        if found.is_all:
            self._known[hit.stored.id] = found
            self.num_passages += len(found.ranges)
            while self.num_passages > _REMEMBERED:
                self._drop(self._known.popitem(last=False)[1])
        return found

    def _drop(self, passages: Passages | None) -> None:
        self.num_passages -= 0 if passages is None else len(passages.ranges)


def rank_passages(
    hits: Sequence[Hit],
    ranking: Ranking,
    passages: Mapping[int, Passages],
    moves: Mapping[str, Mapping[int, Float64s]],
    priors: LogPriors | None,
) -> list[Hit]:
    """
    Return *hits* with the passages of some in place of the whole message, best first.

    Args:
        hits: those of *ranking*.
        ranking: the messages.
        passages: of the divided messages, by their place.
        moves: by list and place the score of each passage, relative to that of its message. A
            message that is missing in the dense list has its lexical ones there.
        priors: of a log of a user and an assistant; None for a chat of named people.
    """
    number = min(len(hits), DIVIDED)
    counts = [len(passages[place].ranges) if place in passages else 1 for place in range(number)]
    of = np.repeat(np.arange(number), counts)
    begins = np.cumsum(counts) - counts
    lists = {name: ranked.at(of) for name, ranked in ranking.lists.items()}
    for place, one in passages.items():
        at = slice(int(begins[place]), int(begins[place]) + len(one.ranges))
        size = len(hits[place].stored.message.memory_text)
        sizes = np.array([end - start for start, end in one.ranges], np.float64)
        for name, ranked in lists.items():
            known = name if place in moves.get(name, {}) else "lexical"
            ranked.priorities[at] += moves[known][place] / lists[known].spread
            if priors is not None:
                ranked.priorities[at] += priors.of_passages(size, sizes)
            elif name == "dense":
                ranked.weights[at] *= cheapness(sizes) / cheapness(np.array([float(size)]))
    return _sorted(hits, passages, of, fused(lists.values()))


def passage_similarities(
    passages: Sequence[TextRange], embeddings: Sequence[Embedding], vector: Float32s
) -> Float64s | None:
    """
    Return the inner product of each passage with *vector*, relative to that of its message: (n,).

    A passage has that of the chunk that overlaps most with it. None for chunks without vectors.
    """
    chunks = [one for one in embeddings if len(one.vector) == vector.nbytes]
    if not chunks:
        return None
    products = np.stack([np.frombuffer(one.vector, "<f4") for one in chunks]) @ vector
    overlaps = np.array(
        [
            [min(end, one.last + 1) - max(start, one.first) for one in chunks]
            for start, end in passages
        ]
    )
    found: Float64s = (products[overlaps.argmax(axis=1)] - products.max()).astype(np.float64)
    return found


def _with_most_words(text: str, ranges: tuple[TextRange, ...], query: str) -> tuple[TextRange, ...]:
    """Return the passages to compare of a message of very many: analyzing all takes seconds."""
    if len(ranges) <= _MAX_PASSAGES:
        return ranges
    words = set(_WORD.findall(query.casefold()))
    folded = [Counter(_WORD.findall(text[start:end].casefold())) for start, end in ranges]
    found = [sum(word in words for word in counts) for counts in folded]
    best = sorted(range(len(ranges)), key=lambda place: (-found[place], place))[:_MAX_PASSAGES]
    return tuple(ranges[place] for place in sorted(best))


def _sorted(
    hits: Sequence[Hit], passages: Mapping[int, Passages], of: Int64s, scores: Float64s
) -> list[Hit]:
    """Return the divided hits by their *scores*, then the other ones."""
    parts = [part for place in np.unique(of).tolist() for part in _parts(passages.get(place))]
    order = np.lexsort((np.arange(len(scores)), -scores))
    found = [
        replace(hits[of[i]], score=float(scores[i]), passages=parts[i]) for i in order.tolist()
    ]
    rest = hits[int(of[-1]) + 1 :]
    if rest:
        # Scores are comparable within one result: the others are below.
        scale = min(1.0, found[-1].score / rest[0].score) if rest[0].score > 0 else 1.0
        found += [replace(hit, score=hit.score * scale) for hit in rest]
    return found


def _parts(passages: Passages | None) -> list[tuple[TextRange, ...]]:
    return [()] if passages is None else [(one,) for one in passages.ranges]
