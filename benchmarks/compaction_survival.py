"""
Measures which planted statements are left after repeated compaction by the default summarizer.

`compaction-conformance-kit` (``make peers``) plants safety rules, constraints, facts, goals and
preferences in a session, and looks for their words after each round, in a fifth of the text. No pin
is set: what is pinned stays anyway. Good figures after round 5 are 1.0 for the first four kinds and
.5 for preferences; its best reference without a model has 1.0 and .25.

    python benchmarks/compaction_survival.py [--rounds 5] [--budget 0.2] [--seeds 24]
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from compaction_kit.benchmark import Compactor
from compaction_kit.canaries import Canary, seeded_canaries
from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import run_conformance
from compaction_kit.session import SeededSession, Turn, build_seeded_session
from report import print_json

from agentmem import ExtractiveSummarizer, Passage, Role, Summary
from agentmem.context.summary_lines import passages_of_summary
from agentmem.types import BranchId

ROLES = {"system": Role.USER, "user": Role.USER, "assistant": Role.ASSISTANT, "tool": Role.TOOL}


class DefaultSummarizer:
    """The kit's interface over ours: later rounds read the lines of the summary before."""

    name = "agentmem"

    def __init__(self) -> None:
        self._summarizer = ExtractiveSummarizer()
        self._num_turns = 1

    def compact(
        self, turns: list[Turn], round_num: int = 1, budget_chars: int | None = None
    ) -> CompactedContext:
        """Compact a session, or what a round before has left of it, into *budget_chars*."""
        assert budget_chars is not None, "there is no compaction without a budget"
        passages = self._first(turns) if round_num == 1 else self._again(turns)
        text = self._summarizer.summarize(passages, max_tokens=budget_chars, count=len)
        return CompactedContext(text=text, compactor_name=self.name, round_num=round_num)

    def _first(self, turns: Sequence[Turn]) -> list[Passage]:
        self._num_turns = len(turns)
        return [
            Passage(position=position, role=ROLES[turn.role], text=turn.text)
            for position, turn in enumerate(turns, start=1)
        ]

    def _again(self, turns: Sequence[Turn]) -> list[Passage]:
        summary = Summary(
            branch_id=BranchId(1),
            first=1,
            last=self._num_turns,
            level=1,
            text="\n".join(turn.text for turn in turns),
            author=self._summarizer.author,
            source_hash="",
        )
        return list(passages_of_summary(summary))


def survival(
    session: SeededSession,
    canaries: list[Canary],
    *,
    rounds: int = 5,
    budget: float = 0.2,
    compactor: Compactor | None = None,
) -> dict[str, float]:
    """Return which share of each kind is left after the last round, none of them over *budget*."""
    run = run_conformance(
        session,
        compactor or DefaultSummarizer(),
        rounds=rounds,
        canaries=canaries,
        budget_fraction=budget,
    )
    assert all(result.within_budget for result in run.rounds), "a round is over its budget"
    return dict(run.rounds[-1].survival_by_type)


def main() -> None:
    """Measure, print a table, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=24)
    options = parser.parse_args()
    limits: dict[str, Any] = {"rounds": options.rounds, "budget": options.budget}
    figures = {"seeded": survival(build_seeded_session(), seeded_canaries(), **limits)}
    builders = {"random": build_random_session, "generated": build_generated_session}
    for name, build in builders.items():
        kinds: dict[str, list[float]] = defaultdict(list)
        for seed in range(1, options.seeds + 1):
            session, canaries = build(seed)[:2]
            for kind, share in survival(session, canaries, **limits).items():
                kinds[kind].append(share)
        figures[name] = {kind: round(statistics.mean(of), 3) for kind, of in kinds.items()}
    print(f"{'':>10}" + "".join(f"{kind:>18}" for kind in figures["seeded"]))
    for name, shares in figures.items():
        print(f"{name:>10}" + "".join(f"{share:>18.3f}" for share in shares.values()))
    print_json(figures)


if __name__ == "__main__":
    main()
