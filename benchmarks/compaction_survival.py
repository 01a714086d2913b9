"""
Measures which planted statements are left after repeated compaction by the default summarizer.

`compaction-conformance-kit` (``make peers``) plants safety rules, constraints, facts, goals and
preferences in a session, and looks for their words after each round, in a fifth of the text. No pin
is set: what is pinned stays anyway. Good figures after round 5 are at least .9 for the first four
kinds and .6 for preferences, on the session it ships, on random ones, and on those of its
generator, which has other subjects and wordings in each. ``planted`` and ``held out`` are talks of
this project in seven languages (`planted_talks`), by language in the JSON object.

The last table is the kit's own benchmark over its compactors that ask no model, at the same
budget: good is rank 1.

    python benchmarks/compaction_survival.py [--rounds 5] [--budget 0.2] [--seeds 24]
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from compaction_kit.benchmark import Compactor, run_budget_benchmark
from compaction_kit.canaries import Canary, seeded_canaries
from compaction_kit.cli import COMPACTORS
from compaction_kit.compacted import CompactedContext
from compaction_kit.corpus import build_random_session
from compaction_kit.generated import build_generated_session
from compaction_kit.runner import run_conformance
from compaction_kit.semantic_corpus import build_semantic_heldout_session, build_semantic_session
from compaction_kit.session import SeededSession, Turn, build_seeded_session
from planted_talks import KINDS, kept_kinds, languages, planted_talk, summary_of
from report import print_json

from agentmem import ExtractiveSummarizer, Passage, Role
from agentmem.context.summary_lines import passages_of_summary

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
        summary = summary_of("\n".join(turn.text for turn in turns), self._num_turns)
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


def kit_figures(rounds: int, budget: float, seeds: int) -> dict[str, dict[str, float]]:
    """Return the mean shares by kind for each way of the kit to build a session."""
    limits: dict[str, Any] = {"rounds": rounds, "budget": budget}
    figures = {"seeded": survival(build_seeded_session(), seeded_canaries(), **limits)}
    builders = {
        "random": build_random_session,
        "generated": build_generated_session,
        "restated": build_semantic_session,
        "restated 2": build_semantic_heldout_session,
    }
    for name, build in builders.items():
        kinds: dict[str, list[float]] = defaultdict(list)
        for seed in range(1, seeds + 1):
            session, canaries = build(seed)[:2]
            for kind, share in survival(session, canaries, **limits).items():
                kinds[kind].append(share)
        figures[name] = _means(kinds)
    return figures


def own_figures(rounds: int, seeds: int, *, held_out: bool) -> dict[str, dict[str, float]]:
    """Return the mean shares by kind for each language of the talks of this project."""
    figures = {}
    for language in languages():
        kinds: dict[str, list[float]] = defaultdict(list)
        for seed in range(1, seeds + 1):
            talk, planted = planted_talk(language, seed, held_out=held_out)
            for kind, is_kept in kept_kinds(talk, planted, rounds).items():
                kinds[kind].append(is_kept)
        figures[language] = _means(kinds)
    return figures


def beside_others(rounds: int, budget: float, seeds: int) -> list[dict[str, Any]]:
    """Return the entries of the kit's benchmark, best first, with ours among its compactors."""
    made = run_budget_benchmark(
        {DefaultSummarizer.name: DefaultSummarizer, **COMPACTORS},
        budgets=[budget],
        seeds=range(1, seeds + 1),
        rounds=rounds,
    )
    entries: list[dict[str, Any]] = made["entries"]
    return entries


def _means(kinds: dict[str, list[float]]) -> dict[str, float]:
    return {kind: round(statistics.mean(shares), 3) for kind, shares in kinds.items()}


def _mean_of(figures: dict[str, dict[str, float]]) -> dict[str, float]:
    return _means({kind: [shares[kind] for shares in figures.values()] for kind in KINDS})


def main() -> None:
    """Measure, print tables, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.2)
    parser.add_argument("--seeds", type=int, default=24)
    options = parser.parse_args()
    figures = kit_figures(options.rounds, options.budget, options.seeds)
    languages_of = {
        name: own_figures(options.rounds, options.seeds, held_out=held_out)
        for name, held_out in (("planted", False), ("held out", True))
    }
    rows = figures | {name: _mean_of(of) for name, of in languages_of.items()}
    print(f"{'':>12}" + "".join(f"{kind:>18}" for kind in figures["seeded"]))
    for name, shares in rows.items():
        print(f"{name:>12}" + "".join(f"{share:>18.3f}" for share in shares.values()))
    entries = beside_others(options.rounds, options.budget, options.seeds)
    print(f"\n{'compactor':>24} {'survival':>9} {'resolved':>9} {'distinct':>9} {'in budget':>9}")
    for entry in entries:
        kept, restated = entry["randomized"]["overall_final_survival"], entry["semantic"]
        shares = (kept, restated["resolved_rate"], restated["distinct_pair_rate"])
        print(
            f"{entry['compactor']:>24}"
            + "".join(f" {share:>9.3f}" for share in shares)
            + f" {'yes' if entry['budget_compliant'] else 'no':>9}"
        )
    ranks = {"ranks": {entry["compactor"]: entry["rank"] for entry in entries}}
    print_json(figures | languages_of | ranks)


if __name__ == "__main__":
    main()
