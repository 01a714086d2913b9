# ruff: noqa: RUF001 - other alphabets have letters like ours
"""
Sentences that bind or inform, which a summary carries before everything else.

A rule, a limit, a deadline, a decision, the state of the work, a preference, a name or a number is
needed word for word much later, and its frequency is not informative: the most repeated text is
filler. So each statement gets a strength by its words (`standing_words`) and its values, without a
model. ``benchmarks/compaction_survival.py`` measures how many planted statements survive five
rounds of compaction.
"""

import re
from collections.abc import Sequence
from typing import Final

from agentmem.context.standing_words import BINDING, INFORMING, PREFERENCE, STATE
from agentmem.types import Role

MIN_STRENGTH: Final = 1.0
"""Minimum strength of a standing fact: one signal, said by a user."""

SHARE_OF_ROLE: Final = {Role.USER: 1.0, Role.ASSISTANT: 0.5, Role.TOOL: 0.25, Role.SYSTEM: 1.0}
"""Share of the strength of what is said, by its speaker: results of tools are full of numbers."""

_BINDING_WEIGHT: Final = 2
"""How many other signals one that binds is worth."""

_LABEL_STRENGTH: Final = 3.0
"""Minimum strength of a statement with a label: the speaker says that it matters."""

_MAX_COUNTED: Final = 2
"""Different signals of one kind that count: a list of ten numbers is not ten times a fact."""

_OTHERS: Final = (STATE, INFORMING, PREFERENCE)

_QUESTION_SHARE: Final = 0.4
_RECEIPT_SHARE: Final = 0.2

_PLAIN: Final = (
    r"(?i:(?:(?:user|safety|hard|project|important|key|general) )?(?:rule|fact|goal|goal state"
    "|constraint|note|preference|info|reminder|remember|requirement)s?"
    "|regel|hinweis|fakt|ziel|règle|fait|note|regla|nota|hecho|правило|факт|заметка)"
    "|(?:请记住|记住|注意|备注|规则|事实|目标|偏好|规定|メモ|重要|事実|規則)"
)
_LABEL: Final = re.compile(
    rf"\W*(?:(?P<plain>{_PLAIN})|[A-Z][A-Z _-]{{2,30}}|(?i:todo|decision|deadline|wichtig))"
    r"\s*[:\uff1a]\s*"
)
_SPECIFIC: Final = re.compile(
    r"https?://\S+|\d{4}-\d\d-\d\d|[$€£¥]\s?\d[\d.,]*|\b\d[\d.,]*\s?(?:%|[A-Z]{3}\b|[a-zµ]{1,3}\b)"
    r"|\b[A-Z]{2,}[A-Z0-9]*-\d+\b|\b[\w.]+[/_][\w./_-]+|\b\w*\d\w*(?:[.-]\w+)*"
    r"|\b(?:[A-Z][a-z]+ ){1,3}[A-Z][a-z]+\b|\b[A-Z]{3,}\b"
)
_RECEIPT: Final = re.compile(
    r"\W*(?:(?:acknowledged|noted|ok(?:ay)?|sure|got it|understood|will do|recorded|thanks?"
    r"|thank you|(?:ha)+|oh|hm+|wow|ja|verstanden|alles klar|gerne?|d['\u2019]accord|entendido"
    r"|понял\w*|хорошо|ха)\b|好的|明白|了解|承知|哈哈|はは|嗯)",
    re.IGNORECASE,
)
_WORD: Final = re.compile(r"\w+")
_QUESTION_MARKS: Final = ("?", "\uff1f", "\u061f", "\u037e")


def strength(text: str, words: Sequence[str], role: Role) -> float:
    """Return how much *text*, of *words* in folded case, binds or informs; 0 for neither."""
    label = _LABEL.match(text)
    if label is None:
        found: float = _num_signals(text, words)
    else:
        own = _num_signals(text[label.end() :], words[num_words(label[0]) :])
        found = max(own, _LABEL_STRENGTH)
    found *= SHARE_OF_ROLE[role]
    if found and _RECEIPT.match(text):
        found *= _RECEIPT_SHARE
    if text.rstrip().endswith(_QUESTION_MARKS):
        found *= _QUESTION_SHARE
    return found


def label_apart(sentence: str) -> list[str]:
    """
    Return the label and the rest of *sentence*, if the label only classifies it; else one item.

    Such labels are ``FACT:`` or ``Note:``; without them the rest means the same.
    """
    found = _LABEL.match(sentence)
    if found is None or found["plain"] is None or found.end() == len(sentence):
        return [sentence]
    return [found[0], sentence[found.end() :]]


def num_words(label: str) -> int:
    """Return the number of words in *label*."""
    return len(_WORD.findall(label))


def _num_signals(text: str, words: Sequence[str]) -> int:
    """Return the number of signals in *text*, of each kind as many as count."""
    distinct, joined = frozenset(words), f" {' '.join(words)} "
    found = min(_MAX_COUNTED, len(set(_SPECIFIC.findall(text))))
    found += _BINDING_WEIGHT * min(_MAX_COUNTED, BINDING.num(distinct, joined))
    return found + sum(min(_MAX_COUNTED, cues.num(distinct, joined)) for cues in _OTHERS)
