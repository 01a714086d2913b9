"""
Talks with planted statements: one of each kind among small talk, in seven languages.

The statements and the talk are in ``data/standing_statements.json``, written for this project. Each
kind has four statements a language; half of them were not looked at while words and weights of the
summarizer were chosen.
"""

import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from agentmem import ExtractiveSummarizer, Passage, Role, Summary
from agentmem.context.summary_lines import passages_of_summary
from agentmem.types import BranchId

KINDS = ("safety_rule", "constraint", "fact", "goal", "preference")
DATA = Path(__file__).parent / "data" / "standing_statements.json"
SHARE = 0.15
"""Share of the characters of a talk that its summary may take: the statements take two thirds."""

_LABEL = 10
"""Characters of a line beside its text, about."""

Talk = list[tuple[Role, str]]


@cache
def languages() -> dict[str, dict[str, Any]]:
    """Return the statements and the small talk by language."""
    read: dict[str, dict[str, Any]] = json.loads(DATA.read_text(encoding="utf-8"))
    return read


def planted_talk(language: str, seed: int, *, held_out: bool) -> tuple[Talk, dict[str, str]]:
    """Return a talk, and the planted statement of each kind."""
    rng = random.Random(seed)
    of_one = languages()[language]
    half = slice(2, 4) if held_out else slice(0, 2)
    planted = {kind: rng.choice(of_one[kind][half]) for kind in KINDS}
    user, assistant = list(of_one["user"]), list(of_one["assistant"])
    rng.shuffle(user)
    rng.shuffle(assistant)
    places = rng.sample(range(len(user)), len(KINDS))
    statements = dict(zip(places, planted.values(), strict=True))
    talk: Talk = []
    for place, (said, answer) in enumerate(zip(user, assistant, strict=True)):
        asked = [statements[place], said] if place in statements else [said]
        talk += [(Role.USER, text) for text in asked]
        talk.append((Role.ASSISTANT, answer))
    return talk, planted


def kept_kinds(talk: Talk, planted: dict[str, str], rounds: int) -> dict[str, bool]:
    """Return for each kind whether its statement is left after *rounds* of compaction."""
    size = int(SHARE * sum(len(text) + _LABEL for _, text in talk))
    text = compacted(talk, size, rounds)[-1]
    return {kind: statement in text for kind, statement in planted.items()}


def compacted(talk: Talk, max_chars: int, rounds: int) -> Sequence[str]:
    """Return the summary of each of *rounds*, the later ones of the summary before."""
    passages = [Passage(position=n, role=role, text=text) for n, (role, text) in enumerate(talk, 1)]
    texts: list[str] = []
    for _ in range(rounds):
        text = ExtractiveSummarizer().summarize(passages, max_tokens=max_chars, count=len)
        assert len(text) <= max_chars, "a summary is over its budget"
        texts.append(text)
        passages = list(passages_of_summary(summary_of(text, len(talk))))
    return texts


def summary_of(text: str, num_messages: int) -> Summary:
    """Return *text* as a summary of the first *num_messages*."""
    return Summary(
        branch_id=BranchId(1),
        first=1,
        last=num_messages,
        level=1,
        text=text,
        author=ExtractiveSummarizer.author,
        source_hash="",
    )
