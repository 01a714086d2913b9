"""
The ledger of standing facts: the statements that a summary carries before its narrative.

Statements are carried word for word from summary to summary, strongest first, while there is room.
Of several versions of a statement the newest comes first, the others after all else: a later
statement with the same rare words is taken for a version, whatever its values.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from agentmem.context.salience import Sentence
from agentmem.context.standing_facts import MIN_STRENGTH, label_apart, num_words, strength
from agentmem.context.standing_words import BINDING
from agentmem.protocols import Passage
from agentmem.types import Role

_SHORT_MESSAGE: Final = 400
"""Characters up to which a message is one statement."""

_REPEATED_SHARE: Final = 0.25
"""Share of the strength of what is said several times word for word: it is filler."""

_SAME_SUBJECT: Final = 0.3
"""Minimum cosine similarity of two versions of a statement, by their rare words."""

_STEM: Final = 5
"""Characters of a word by which its forms are equal."""

_DIGIT: Final = re.compile(r"\d")

_ONLY_BINDS: Final = BINDING.words | {phrase.strip() for phrase in BINDING.phrases}
"""Words that two statements may have in common without being about the same."""


@dataclass(frozen=True, slots=True)
class Statement:
    """Adjacent sentences of one passage that bind or inform."""

    sentences: tuple[Sentence, ...]
    role: Role
    strength: float

    @property
    def num_chars(self) -> int:
        """Return the length of its text."""
        return sum(len(sentence.text) for sentence in self.sentences)


def ledger_of(sentences: Sequence[Sentence], passages: Sequence[Passage]) -> list[Statement]:
    """
    Return the statements of *sentences* that bind or inform, best first.

    A short message is one statement: its second sentence may be the condition of the first.
    """
    found: list[Statement] = []
    repeats = Counter(sentence.words for sentence in sentences)
    for index, group in groupby(sentences, key=lambda sentence: sentence.passage):
        said = tuple(group)
        is_short = sum(len(one.text) for one in said) <= _SHORT_MESSAGE
        for part in [said] if is_short else [(one,) for one in said]:
            is_filler = all(repeats[one.words] > 1 for one in part)
            made = _statement(part, passages[index].role, _REPEATED_SHARE if is_filler else 1.0)
            if made.strength >= MIN_STRENGTH:
                found.append(made)
    likeness = _superseded(found, sentences)
    return sorted(found, key=lambda one: _rank(one, likeness.get(one, 0.0)))


def _rank(one: Statement, likeness: float) -> tuple[float, float, int, int]:
    # The shorter of two that are as strong leaves more room, the newer is more likely to hold.
    return likeness, -one.strength, one.num_chars, -one.sentences[0].place


def _statement(said: tuple[Sentence, ...], role: Role, share: float) -> Statement:
    text = " ".join(one.text for one in said)
    words = [word for one in said for word in one.words]
    found = strength(text, words, role)
    label, *rest = label_apart(said[0].text)
    if rest and strength(text[len(label) :], words[num_words(label) :], role) >= MIN_STRENGTH:
        # The label would only take room: the statement stands without it.
        said = (replace(said[0], text=rest[0]), *said[1:])
    return Statement(said, role, found * share)


def _superseded(
    statements: Sequence[Statement], sentences: Sequence[Sentence]
) -> dict[Statement, float]:
    """
    Return those of *statements* of which a later one is a version, with their cosine similarity.

    A user's is only superseded by a user's.
    """
    terms = [_subject_terms(one) for one in statements]
    holders: dict[str, list[int]] = defaultdict(list)
    for index, of_one in enumerate(terms):
        for term in of_one:
            holders[term].append(index)
    # Squared, since cosine similarity multiplies the weights of both.
    num = Counter(t[:_STEM] for one in sentences for t in set(one.terms))
    weights = {term: math.log1p(len(sentences) / num[term]) ** 2 for term in holders}
    norms = [math.sqrt(sum(map(weights.__getitem__, of_one))) for of_one in terms]
    old: dict[Statement, float] = {}
    for index, statement in enumerate(statements):
        shared: dict[int, float] = defaultdict(float)
        for term in terms[index]:
            for other in holders[term]:
                if other > index:
                    shared[other] += weights[term]
        likeness = max(
            (
                weight / (norms[index] * norms[other])
                for other, weight in shared.items()
                if statement.role is not Role.USER or statements[other].role is Role.USER
            ),
            default=0.0,
        )
        if likeness >= _SAME_SUBJECT:
            old[statement] = likeness
    return old


def _subject_terms(statement: Statement) -> frozenset[str]:
    """Return the stems of what *statement* is about: no values, no words that only bind."""
    return frozenset(
        term[:_STEM]
        for sentence in statement.sentences
        for term in sentence.terms
        if term not in _ONLY_BINDS and not _DIGIT.search(term)
    )
