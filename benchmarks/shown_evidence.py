"""
Tells which share of a question's evidence a prompt shows, whole turns and parts of turns.

A turn of which passages are shown counts by a proxy: at least half of its words that bear the
answer are in them. These are its content words that are in the answer (or in the labelled memories)
and not in the question; where there are none, also those of the question; where there are none
either, half of its text must be shown. Words are not weighted. The strict share counts whole turns
only.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from talks import Question

from agentmem.retrieval.text.analyzer import Analyzer
from agentmem.types import Prompt, StoredMessage, Tier
from agentmem.types.passages import TextRange, excerpt

_ANALYZER = Analyzer()


class Shown(NamedTuple):
    """What a prompt shows of the evidence of one question."""

    kind: str
    strict: float
    """Share of the evidence that is shown whole."""

    recall: float
    """Share of the evidence, by the proxy."""

    passages: int
    """Recalled passages; a whole message is one."""


def shown_evidence(
    question: Question, prompt: Prompt, messages: Mapping[int, StoredMessage]
) -> Shown:
    """Return what *prompt* shows of the evidence of *question*."""
    parts = {
        position: span.passages
        for span in prompt.layout
        if span.tier in (Tier.RETRIEVED, Tier.RECENT)
        for position in range(span.first, span.last + 1)
    }
    shown = question.evidence & parts.keys()
    whole = sum(not parts[position] for position in shown)
    told = sum(
        not parts[position]
        or _tells(messages[position].message.memory_text, parts[position], question)
        for position in shown
    )
    recalled = (span for span in prompt.layout if span.tier is Tier.RETRIEVED)
    return Shown(
        kind=question.kind,
        strict=whole / len(question.evidence),
        recall=told / len(question.evidence),
        passages=sum(len(span.passages) or 1 + span.last - span.first for span in recalled),
    )


def _tells(text: str, passages: tuple[TextRange, ...], question: Question) -> bool:
    turn, asked, answer = _words(text), _words(question.text), _words(question.answer)
    bearing = ((answer & turn) - asked) or (answer & turn)
    if bearing:
        return 2 * len(bearing & _words(excerpt(text, passages))) >= len(bearing)
    return 2 * sum(end - start for start, end in passages) >= len(text)


@lru_cache(maxsize=4096)
def _words(text: str) -> frozenset[str]:
    return frozenset(term for same in _ANALYZER.query(text, ["english"]) for term in same)
