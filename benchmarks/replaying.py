"""Says conversations turn by turn and measures how much of each prompt was in the one before."""

import json
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from agentmem import Budget, Hit, Memory, Policy
from agentmem.protocols import TokenCounter
from agentmem.types import Message, Prompt, Role, StoredMessage, TextPart, Tier, common_prefix

ROLE = "You are a friend who remembers what was said."
WAYS = {
    "none": Policy(),
    "tail": Policy(),
    "kept": Policy(keep_recalled=True),
}
"""Without recalled text; with it at the tail of each prompt; with it kept where it was first."""


def talks(data: Path) -> Iterator[list[Message]]:
    """Give the conversations of a LoCoMo file; two speakers become user and assistant."""
    for entry in json.loads(data.read_text()):
        talk: dict[str, Any] = entry["conversation"]
        days = sorted(
            (key for key in talk if key.startswith("session_") and isinstance(talk[key], list)),
            key=lambda key: int(key.split("_")[1]),
        )
        yield [
            _message(
                Role.USER if turn["speaker"] == talk["speaker_a"] else Role.ASSISTANT,
                f"{turn['speaker']}: {turn['text']}",
            )
            for day in days
            for turn in talk[day]
        ]


def replay(
    path: Path, counter: TokenCounter, talk: Sequence[Message], budget: Budget, way: str
) -> dict[str, Any]:
    """Say *talk* message by message and assemble before each answer."""
    budget = replace(budget, retrieved=0 if way == "none" else 0.25)
    prompts: list[Prompt] = []
    url = f"sqlite:///{path}"
    with Memory.open(url, counter=counter, budget=budget, policy=WAYS[way]) as memory:
        session = memory.session("replay")
        session.pin("role", ROLE)
        said: list[StoredMessage] = []
        for message in talk:
            said.append(session.append(message.role, message.text))
            if message.role is Role.USER:
                hits = _recall(said) if way != "none" else []
                prompts.append(session.assemble(hits=hits))
        balances = session.check() == ()
        named = [p for r in session.truncations() for p in range(r.first, r.last + 1)]
    return {"way": way, "balances": balances} | _shares(prompts, named, budget)


def _recall(said: Sequence[StoredMessage]) -> list[Hit]:
    """Recall by shared words: good enough to see what recalled text does to a prefix."""
    asked = set(said[-1].message.text.lower().split())
    scored = [
        Hit(stored=one, score=len(asked & words) / (4 + len(words)))
        for one in said[:-1]
        if (words := set(one.message.text.lower().split()))
    ]
    return sorted(scored, key=lambda hit: hit.score)[-40:]


def _shares(prompts: Sequence[Prompt], named: Sequence[int], budget: Budget) -> dict[str, Any]:
    """Measure from the first prompt on that had to leave something out; ``whole`` is all."""
    first = next((i for i, prompt in enumerate(prompts) if prompt.truncations), 0)
    steady = prompts[first:]
    whole = [
        common_prefix(one.token_ids, other.token_ids) / other.num_tokens
        for one, other in pairwise(prompts)
    ]
    shares = whole[first:]
    hidden = [
        position
        for span in prompts[-1].layout
        if span.tier in (None, Tier.SUMMARY)
        for position in range(span.first, span.last + 1)
    ]
    return {
        "turns": len(prompts),
        "whole": round(statistics.mean(whole), 4),
        "shared": round(statistics.mean(shares), 4),
        "shared_p10": round(statistics.quantiles(shares, n=10)[0], 4),
        "used": round(statistics.mean(p.num_tokens for p in steady) / budget.prompt, 4),
        "folds": sum(prompt.reuse.broken_by == "compaction" for prompt in prompts),
        "named_once": sorted(named) == hidden,
    }


def _message(role: Role, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text=text),))
