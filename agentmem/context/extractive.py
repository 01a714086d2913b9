"""
A summary without a model: the sentences that say most, as they were said, in their order.

It is deterministic and knows no language: sentences end where the punctuation of Latin, CJK,
Arabic or Indic scripts ends them, words are runs of letters, and where a script has no spaces a
term is a pair of characters. Salience follows SumBasic (Nenkova and Vanderwende, 2005): a
sentence is worth the mean frequency of its terms, and terms that were said already count less.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from agentmem.protocols import Passage
from agentmem.types import Role
from agentmem.types.words import UNSPACED, WORD, clusters, normalize

# Full stop, exclamation and question marks: Latin, CJK (full width), Arabic, Devanagari.
_SENTENCE_END = re.compile("(?<=[.!?])\\s+|(?<=[\u3002\uff01\uff1f\u061f\u0964])|\n+")
_WORD = re.compile(rf"\w{WORD}*")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_DECISION = re.compile(
    r"\b(decid|agree|must|never|always|will|book|choos|chose|take|prefer|need|deadline|instead)"
    r"|决定|決定|必须|必須|不要|同意|选择|選",
    re.IGNORECASE,
)
_MAX_SENTENCE = 320
"""Characters; a longer run without punctuation is cut, so that one listing is not one sentence."""

_MAX_SENTENCES = 2000
"""More than this many are thinned out evenly first, so that the work stays bounded."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    position: int
    role: Role
    text: str
    terms: tuple[str, ...]
    weight: float


class ExtractiveSummarizer:
    """The default summarizer: needs no model, gives the same text for the same messages."""

    author = "extractive"

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Choose sentences of *passages* that fit in *max_tokens* by *count*; "" if none does.

        Each line of the result is one message's chosen sentences behind its role.
        """
        sentences = _sentences(passages)
        left = Counter(term for s in sentences for term in set(s.terms))
        total = sum(left.values()) or 1
        probability = {term: num / total for term, num in left.items()}
        chosen: list[_Sentence] = []
        waiting = list(sentences)
        used = 0
        while waiting:
            best = max(waiting, key=lambda s: (_worth(s, probability), -s.place))
            waiting.remove(best)
            # A line costs its role too, but only once a message; counting it for each sentence
            # errs on the safe side.
            cost = count(f"{best.role}: {best.text}\n")
            if used + cost > max_tokens:
                if cost < max_tokens // 8:
                    break
                continue
            used += cost
            chosen.append(best)
            waiting = [s for s in waiting if s.terms != best.terms]
            for term in set(best.terms):
                probability[term] **= 2
        return _write(sorted(chosen, key=lambda s: s.place))


def _worth(sentence: _Sentence, probability: dict[str, float]) -> float:
    if not sentence.terms:
        return 0.0
    mean = sum(probability[term] for term in sentence.terms) / len(sentence.terms)
    return mean * sentence.weight


def _sentences(passages: Sequence[Passage]) -> list[_Sentence]:
    found: list[_Sentence] = []
    for index, passage in enumerate(passages):
        for number, text in enumerate(_split(passage.text)):
            weight = _weight(passage.role, text, is_first=number == 0)
            if index == 0:
                weight *= 1.5  # the range's beginning says what it is about
            terms = tuple(_terms(text))
            found.append(_Sentence(len(found), passage.position, passage.role, text, terms, weight))
    if len(found) > _MAX_SENTENCES:
        step = len(found) / _MAX_SENTENCES
        found = [found[int(i * step)] for i in range(_MAX_SENTENCES)]
    return found


def _split(text: str) -> list[str]:
    pieces = (" ".join(piece.split()) for piece in _SENTENCE_END.split(text))
    return [
        piece[start : start + _MAX_SENTENCE]
        for piece in pieces
        for start in range(0, len(piece), _MAX_SENTENCE)
    ]


def _terms(text: str) -> list[str]:
    terms: list[str] = []
    for word in _WORD.findall(normalize(text).casefold()):
        if _UNSPACED.search(word):
            characters = clusters(word)
            pairs = [one + other for one, other in pairwise(characters)]
            terms += pairs or characters
        elif len(word) > 2 or word.isdigit():  # noqa: PLR2004 - short words carry no topic
            terms.append(word)
    return terms


def _weight(role: Role, text: str, *, is_first: bool) -> float:
    weight = {Role.USER: 2.0, Role.ASSISTANT: 1.0, Role.TOOL: 0.6}.get(role, 1.0)
    if is_first:
        weight *= 1.2
    if any(c.isdigit() for c in text):
        weight *= 1.6
    if re.search(r"(?<=[\w,;] )[A-Z]\w+", text):
        weight *= 1.3
    if _DECISION.search(text):
        weight *= 1.3
    return weight


def _write(sentences: Sequence[_Sentence]) -> str:
    lines: list[str] = []
    last = None
    for sentence in sentences:
        if sentence.position == last:
            lines[-1] += f" {sentence.text}"
        else:
            lines.append(f"{sentence.role}: {sentence.text}")
        last = sentence.position
    return "\n".join(lines)
