"""
Extractive summaries: the most salient sentences, quoted in order. No model.

Deterministic and language-independent, with some language-specific lists: abbreviations
(`sentences`), and stems of words for decisions in a few languages. Words are runs of letters with
their marks; in scripts without spaces a term is a character bigram.
Salience follows SumBasic (Nenkova and Vanderwende, 2005): a sentence is worth the mean frequency of
its terms, and already chosen terms count less. Sentences are quoted whole or not at all.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from agentmem.context.clip_text import MAX_CHARS_PER_TOKEN
from agentmem.context.standing_facts import MIN_STRENGTH, priority, strength, subject_of
from agentmem.context.summary_lines import label_of, line_of
from agentmem.protocols import Passage
from agentmem.types import Role
from agentmem.types.sentences import OMITTED, split_sentences
from agentmem.types.words import UNSPACED, WORD, clusters, normalize

_WORD = re.compile(rf"\w{WORD}*")
_UNSPACED = re.compile(f"[{UNSPACED}]")
# Scripts with spaces: particles attached to words do not prevent matches.
_HANGUL = re.compile("[\u1100-\u11ff\u3131-\u318e\uac00-\ud7ff]+")
_DECISION = re.compile(
    r"\b(?:decid|agree|must|never|always|will|book|choos|chose|take|prefer|need|deadline|instead"
    r"|entsch|muss|müss|niemals|immer|brauch|statt|décid|jamais|toujours|besoin|plutôt"
    r"|decidi|nunca|siempre|necesit)"
    r"|\u51b3\u5b9a|\u6c7a\u5b9a|\u5fc5\u987b|\u5fc5\u9808|\u4e0d\u8981|\u540c\u610f|\u9009\u62e9|\u9078"
    r"|\u0440\u0435\u0448\u0438\u043b|\u043d\u0443\u0436\u043d|\u043d\u0438\u043a\u043e\u0433\u0434\u0430",
    re.IGNORECASE,
)
_ROLE_WEIGHT = {Role.USER: 2.0, Role.TOOL: 0.6}
_BEGINNING_WEIGHT = 1.5
_NUMBER_WEIGHT = 1.6
_DECISION_WEIGHT = 1.3

_LABEL_SHARE = 3
"""Divisor of the size above which line prefixes are too long, and dates are omitted."""

_SHORT_MESSAGE = 400
"""Characters up to which a message is one statement."""

_MAX_SENTENCES = 2000
"""Maximum sentences: more are sampled evenly first, to bound the work."""


@dataclass(frozen=True, slots=True)
class _Sentence:
    place: int
    passage: int
    number: int
    """Its index within the passage, counting omitted sentences."""

    text: str
    words: tuple[str, ...]
    terms: tuple[str, ...]
    weight: float


class ExtractiveSummarizer:
    """The default summarizer: deterministic, without a model."""

    author = "extractive"

    def __repr__(self) -> str:
        return "ExtractiveSummarizer()"

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """
        Return sentences of *passages* that fit *max_tokens* by *count*; "" if none does.

        Each line has the chosen sentences of one passage, after its position, date and speaker.
        """
        if any(count(label_of(one)) * _LABEL_SHARE > max_tokens for one in passages[:1]):
            passages = [replace(passage, day=None) for passage in passages]
        page = _Page(passages, count, max_tokens)
        sentences = _sentences(passages)
        for statement in _standing(sentences, passages):
            page.add(statement)
        for sentence in _by_worth(sentences, max_tokens * MAX_CHARS_PER_TOKEN, page.chosen):
            if not page.add([sentence]) and page.cost_of([sentence]) < max_tokens // 8:
                break
        return page.text()


class _Page:
    """The chosen sentences, and the tokens that are left."""

    def __init__(
        self, passages: Sequence[Passage], count: Callable[[str], int], max_tokens: int
    ) -> None:
        self._passages = passages
        self._count = count
        self._max_tokens = max_tokens
        # A separately counted text has overhead that a line within a text has not.
        self._frame = max(0, 2 * count("a") - count("a\na"))
        self._left = max_tokens - self._frame
        self.chosen: list[_Sentence] = []

    def add(self, sentences: Sequence[_Sentence]) -> bool:
        """Add adjacent *sentences* of one passage if they fit; return whether they do."""
        cost = self.cost_of(sentences)
        if cost > self._left:
            return False
        self._left -= cost
        self.chosen += sentences
        return True

    def cost_of(self, sentences: Sequence[_Sentence]) -> int:
        """Return the tokens that *sentences* take, with the label of a new line."""
        text = " ".join(sentence.text for sentence in sentences)
        index = sentences[0].passage
        is_new = all(other.passage != index for other in self.chosen)
        line = line_of(self._passages[index], text) if is_new else f"{OMITTED} {text}"
        return self._count(line) - self._frame

    def text(self) -> str:
        """Return the summary; the last chosen are dropped where lines take more together."""
        while self.chosen and self._count(_write(self.chosen, self._passages)) > self._max_tokens:
            self.chosen.pop()
        return _write(self.chosen, self._passages)


def _standing(sentences: Sequence[_Sentence], passages: Sequence[Passage]) -> list[list[_Sentence]]:
    """
    Return the statements that bind or inform, best first; of several versions only the newest.

    A short message is one statement: its second sentence may be the condition of the first.
    """
    found: dict[str, tuple[float, list[_Sentence]]] = {}
    for index, group in groupby(sentences, key=lambda sentence: sentence.passage):
        role, said = passages[index].role, list(group)
        is_short = sum(len(one.text) for one in said) <= _SHORT_MESSAGE
        for statement in [said] if is_short else [[one] for one in said]:
            text = " ".join(one.text for one in statement)
            if strength(text, role) >= MIN_STRENGTH:
                found.pop(subject_of(text), None)
                found[subject_of(text)] = priority(text, role), statement
    ranked = sorted(found.values(), key=lambda one: (-one[0], -one[1][0].place))
    return [statement for _, statement in ranked]


def _by_worth(
    sentences: Sequence[_Sentence], max_chars: int, chosen: Sequence[_Sentence]
) -> Iterator[_Sentence]:
    """Yield *sentences* that are not chosen, best first; additions to *chosen* affect the rest."""
    known = {sentence.words for sentence in chosen}
    waiting = [one for one in sentences if len(one.text) <= max_chars and one.words not in known]
    counted = Counter(term for s in waiting for term in set(s.terms))
    total = sum(counted.values()) or 1
    probability = {term: num / total for term, num in counted.items()}
    while waiting:
        waiting.sort(key=lambda s: (-_worth(s, probability), s.place))
        num_chosen = len(chosen)
        for index, best in enumerate(waiting):
            yield best
            if len(chosen) > num_chosen:
                waiting = [s for s in waiting[index + 1 :] if s.words != best.words]
                for term in set(best.terms):
                    probability[term] **= 2
                break
        else:
            return


def _worth(sentence: _Sentence, probability: dict[str, float]) -> float:
    if not sentence.terms:
        return 0.0
    mean = sum(probability[term] for term in sentence.terms) / len(sentence.terms)
    return mean * sentence.weight


def _sentences(passages: Sequence[Passage]) -> list[_Sentence]:
    found: list[_Sentence] = []
    for index, passage in enumerate(passages):
        for number, text in enumerate(split_sentences(passage.text)):
            words = tuple(_WORD.findall(normalize(text).casefold()))
            if not words:
                continue
            weight = _weight(passage.role, text, is_beginning=index == 0)
            terms = tuple(_terms_of(words))
            found.append(_Sentence(len(found), index, number, text, words, terms, weight))
    if len(found) > _MAX_SENTENCES:
        step = len(found) / _MAX_SENTENCES
        found = [found[int(i * step)] for i in range(_MAX_SENTENCES)]
    return found


def _terms(text: str) -> list[str]:
    return list(_terms_of(_WORD.findall(normalize(text).casefold())))


def _terms_of(words: Iterable[str]) -> Iterator[str]:
    for word in words:
        if _UNSPACED.search(word) and not _HANGUL.fullmatch(word):
            characters = clusters(word)
            pairs = [one + other for one, other in pairwise(characters)]
            yield from pairs or characters
        # Short words carry no topic in scripts with capitals; in Hangul or Hebrew they do.
        elif len(word) > 2 or word.isdigit() or word.upper() == word:  # noqa: PLR2004
            yield word


def _weight(role: Role, text: str, *, is_beginning: bool) -> float:
    weight = _ROLE_WEIGHT.get(role, 1.0)
    if is_beginning:  # of the whole run, which names the topic
        weight *= _BEGINNING_WEIGHT
    if any(c.isdigit() for c in text):
        weight *= _NUMBER_WEIGHT
    if _DECISION.search(text):
        weight *= _DECISION_WEIGHT
    return weight


def _write(chosen: Sequence[_Sentence], passages: Sequence[Passage]) -> str:
    lines = []
    in_order = sorted(chosen, key=lambda s: s.place)
    for index, of_one in groupby(in_order, key=lambda s: s.passage):
        said = list(of_one)
        text = said[0].text
        for before, sentence in pairwise(said):
            text += " " if sentence.number == before.number + 1 else f" {OMITTED} "
            text += sentence.text
        lines.append(line_of(passages[index], text))
    return "\n".join(lines)
