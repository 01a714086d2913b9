"""
Sentences of passages, and which of them are salient by SumBasic (Nenkova and Vanderwende, 2005).

A sentence is worth the mean frequency of its terms, and already chosen terms count less. What is
repeated word for word counts once: it is filler. Words are runs of letters with their marks; in
scripts without spaces a term is a character bigram.
"""

import heapq
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentmem.context.standing_facts import SHARE_OF_ROLE
from agentmem.protocols import Passage
from agentmem.types.sentences import split_sentences
from agentmem.types.words import UNSPACED, WORD, clusters, normalize

_WORD = re.compile(rf"\w{WORD}*")
_UNSPACED = re.compile(f"[{UNSPACED}]")
# Scripts with spaces: particles attached to words do not prevent matches.
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7ff]+")

_MAX_SHORT = 2
"""Letters up to which a word carries no topic in scripts with capitals."""

_MAX_SENTENCES = 2000
"""Maximum sentences: more are sampled evenly first, to bound the work."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence of a passage, with what its salience depends on."""

    place: int
    passage: int
    number: int
    """Its index within the passage, counting omitted sentences."""

    text: str
    words: tuple[str, ...]
    terms: tuple[str, ...]
    weight: float


def sentences_of(passages: Sequence[Passage]) -> list[Sentence]:
    """Return the sentences of *passages* that have words, in order."""
    found: list[Sentence] = []
    for index, passage in enumerate(passages):
        weight = SHARE_OF_ROLE[passage.role]
        for number, text in enumerate(split_sentences(passage.text)):
            words = _words_of(text)
            if words:
                terms = tuple(_terms_of(words))
                found.append(Sentence(len(found), index, number, text, words, terms, weight))
    if len(found) > _MAX_SENTENCES:
        step = len(found) / _MAX_SENTENCES
        found = [found[int(i * step)] for i in range(_MAX_SENTENCES)]
    return found


def by_worth(
    sentences: Iterable[Sentence], max_chars: int, chosen: Sequence[Sentence]
) -> Iterator[Sentence]:
    """Yield *sentences* that are not chosen, best first; additions to *chosen* affect the rest."""
    known = {sentence.words for sentence in chosen}
    first = {s.words: s for s in reversed(list(sentences)) if len(s.text) <= max_chars}
    waiting = [sentence for words, sentence in first.items() if words not in known]
    counted = Counter(term for s in waiting for term in set(s.terms))
    total = sum(counted.values()) or 1
    probability = {term: num / total for term, num in counted.items()}
    # A worth only decreases, so a sentence that is first with its worth of now is the best.
    heap = [(-_worth(s, probability), s.place, s) for s in waiting]
    heapq.heapify(heap)
    while heap:
        worth, place, best = heap[0]
        now = -_worth(best, probability)
        if now > worth:
            heapq.heapreplace(heap, (now, place, best))
            continue
        heapq.heappop(heap)
        num_chosen = len(chosen)
        yield best
        if len(chosen) > num_chosen:
            for term in set(best.terms):
                probability[term] **= 2


def terms_of(text: str) -> list[str]:
    """Return the terms of *text* in order."""
    return list(_terms_of(_words_of(text)))


def _words_of(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(normalize(text).casefold()))


def _worth(sentence: Sentence, probability: dict[str, float]) -> float:
    if not sentence.terms:
        return 0.0
    return sum(map(probability.__getitem__, sentence.terms)) * sentence.weight / len(sentence.terms)


def _terms_of(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if not word.isascii() and _UNSPACED.search(word) and not _HANGUL.fullmatch(word):
            characters = clusters(word)
            pairs = [one + other for one, other in pairwise(characters)]
            yield from pairs or characters
        # In scripts without capitals, such as Hangul or Hebrew, short words carry a topic too.
        elif len(word) > _MAX_SHORT or word.isdigit() or word.upper() == word:
            yield word
