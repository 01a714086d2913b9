"""
Measures which turns of a conversation reach the prompt when something is asked about it.

For each question of a LoCoMo file its evidence, the turns that answer it, is looked for in the
retrieved tier of an assembled prompt: the real ranking, packing, text and tokenizer (SmolLM2), with
512 to 4,096 tokens for the tier. ``recall`` is the mean share of a question's evidence that is
there, ``recall_all`` the share of questions with all of it. Good figures for ``hybrid`` are .82,
.88, .925 and .955, for ``lexical`` .80, .86, .90 and .93; ``dense`` is without words and boosts,
``recent`` the newest turns.

``roles`` is the same with the roles in place of the speakers' names, as in the logs of users and
assistants; the loss is to be under .03. ``asked`` is that with "I" and "you" in place of the names
in the question. ``whole`` is a prompt of so many tokens with a recent
window, half of it for the tier: evidence counts wherever it is shown. ``speed`` is one session of
10,000 turns: a search without embedding the question takes at most twice the time to embed it, a
message more in the index at most 5 ms.

A file in the form of RealMem (`realmem.py`) has users who work with an assistant over months: there
the question is the next turn, and what was said before its session may be searched. Good figures by
words alone are .40, .50, .61 and .71.

With ``--tools`` it is twenty sessions of agents that work with a tool, and what is asked about the
user's demands, the assistant's decisions and the results. With ``--chinese`` it is talks in
Chinese.

Long turns are shown by their passages: ``recall`` counts a turn shown in part by the proxy of
`shown_evidence.py`, ``recall_strict`` whole turns only, and ``passages`` is the mean number of
passages in a prompt.

    python benchmarks/bench_retrieval.py --data FILE [--quick] [--lexical] [--vectors FOLDER]
    python benchmarks/bench_retrieval.py --tools | --chinese [--lexical]
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from chinese_talks import chinese_talks
from locomo import as_self, read_talks
from realmem import is_realmem, read_users
from report import print_json
from searching import WAYS, Remembering, Searcher, searcher_of
from shown_evidence import Shown, shown_evidence
from speed import measure_speed
from talks import Question, Talk
from tool_talks import tool_talks

from agentmem import Budget, Hit
from agentmem.context import Assembler, BranchView, group_turns
from agentmem.inference import LocalModel
from agentmem.protocols import TokenCounter, first_messages
from agentmem.retrieval import SentenceEmbedder
from agentmem.types import (
    BranchId,
    Message,
    MessageId,
    Origin,
    Prompt,
    Role,
    StoredMessage,
    TextPart,
    Tier,
)

BUDGETS = (512, 1024, 2048, 4096)
MIN_HITS = 32
TOKENS_PER_HIT = 8
"""`Session.assemble()` asks for so many messages, and one for so many tokens of the tier."""

WINDOW = 120
"""Newest messages that a whole prompt may show: more than fit into 4,096 tokens."""

Found = dict[int, list[Shown]]
"""By budget what was shown for each question."""


def main() -> None:
    """Measure, print tables, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", type=Path, help="a file in the format of LoCoMo or RealMem")
    what.add_argument("--tools", action="store_true", help="the sessions of `tool_talks.py`")
    what.add_argument("--chinese", action="store_true", help="the talks of `chinese_talks.py`")
    parser.add_argument("--quick", action="store_true", help="the first conversation only")
    parser.add_argument(
        "--lexical", action="store_true", help="by words alone, without an embedder"
    )
    parser.add_argument("--vectors", type=Path, help="a folder that keeps vectors for the next run")
    options = parser.parse_args()
    number = 1 if options.quick else None
    is_log = options.tools or options.chinese or is_realmem(options.data)
    embedder: Any = None if options.lexical else SentenceEmbedder.load()
    speed = {} if is_log or options.lexical else measure_speed(embedder)
    if embedder is not None and options.vectors is not None:
        embedder = Remembering(embedder, options.vectors)
    with LocalModel.load() as model:
        bench = Bench(model.counter, ("lexical",) if options.lexical else WAYS)
        if is_log:
            figures = bench.log(_talks(options)[:number], embedder)
        else:
            figures = bench.conversations(options.data, number, embedder)
    print_json(figures | {"speed": speed} if speed else figures)


def _talks(options: argparse.Namespace) -> list[Talk]:
    if options.tools:
        return tool_talks()
    return chinese_talks() if options.chinese else read_users(options.data)


class Bench:
    """Assembles prompts that ask, and looks what they show."""

    def __init__(self, counter: TokenCounter, ways: Sequence[str]) -> None:
        self._counter = counter
        self._ways = ways
        self._best = ways[0]

    def log(self, users: Sequence[Talk], embedder: Any) -> dict[str, Any]:
        """Measure logs of users and an assistant."""
        searchers = [searcher_of(user, embedder) for user in users]
        found = {way: self.tier(users, searchers, way) for way in self._ways}
        for way, one in found.items():
            _print_table(way, one)
        by_user = _by_talk(users, found[self._best][2048])
        print(f"{self._best} at 2048 by user:", by_user)
        figures: dict[str, Any] = {way: _figures(one) for way, one in found.items()}
        kinds = {way: _kinds(one) for way, one in found.items()}
        return figures | {"kinds": kinds, "users": by_user}

    def conversations(self, data: Path, number: int | None, embedder: Any) -> dict[str, Any]:
        """Measure conversations of two people, with their names and without."""
        talks, plain = (read_talks(data, named=named)[:number] for named in (True, False))
        searchers = [searcher_of(talk, embedder) for talk in talks]
        without_names = [searcher_of(talk, embedder) for talk in plain]
        found = {way: self.tier(talks, searchers, way) for way in self._ways}
        real = [way for way in self._ways if way in ("hybrid", "lexical")]
        roles = {way: self.tier(plain, without_names, way) for way in real}
        selves = [as_self(talk) for talk in plain]
        asked = {way: self.tier(selves, without_names, way) for way in real}
        whole, share = self.whole(talks, searchers)
        for way, one in found.items():
            _print_table(way, one)
        for way, one in roles.items():
            _print_table(f"{way}, roles for names", one)
        for way, one in asked.items():
            _print_table(f"{way}, roles for names, I and you in the question", one)
        _print_table(f"whole prompt, {share:.0%} of it the window", whole)
        by_talk = _by_talk(talks, found[self._best][2048])
        print(f"{self._best} at 2048 by conversation:", by_talk)
        return {way: _figures(one) for way, one in found.items()} | {
            "roles": {way: _figures(one) for way, one in roles.items()},
            "asked": {way: _figures(one) for way, one in asked.items()},
            "roles_loss": {way: _loss(found[way], one) for way, one in roles.items()},
            "whole": _figures(whole) | {"window_share": round(share, 3)},
            "kinds": {way: _kinds(one) for way, one in found.items()},
            "conversations": by_talk,
        }

    def tier(self, talks: Sequence[Talk], searchers: Sequence[Searcher], way: str) -> Found:
        """Look for evidence in the retrieved tier alone."""
        found: Found = {budget: [] for budget in BUDGETS}
        for talk, searcher in zip(talks, searchers, strict=True):
            for question in talk.questions:
                hits = searcher.search(question, way)
                for budget in BUDGETS:
                    limits = Budget(context=2 * budget + 2048, reply=1, summary=0, retrieved=budget)
                    wanted = first_messages(hits, MIN_HITS + budget // TOKENS_PER_HIT)
                    prompt = self._ask(talk, question, wanted, limits, ())
                    assert prompt.tokens_by_tier.get(Tier.RETRIEVED, 0) <= budget, "over the budget"
                    found[budget].append(self._shown(talk, question, prompt))
        return found

    def whole(self, talks: Sequence[Talk], searchers: Sequence[Searcher]) -> tuple[Found, float]:
        """Look for evidence in prompts with a recent window; give the window's mean share too."""
        found: Found = {budget: [] for budget in BUDGETS}
        shares: list[float] = []
        for talk, searcher in zip(talks, searchers, strict=True):
            for question in talk.questions:
                hits = searcher.search(question, self._best)
                for budget in BUDGETS:
                    limits = Budget(context=budget + 1, reply=1, summary=0, retrieved=0.5)
                    window = talk.messages[-WINDOW:]
                    most = WINDOW + MIN_HITS + budget // 2 // TOKENS_PER_HIT
                    wanted = first_messages(hits, most)
                    prompt = self._ask(talk, question, wanted, limits, window)
                    found[budget].append(self._shown(talk, question, prompt))
                    shares.append(prompt.tokens_by_tier.get(Tier.RECENT, 0) / prompt.num_tokens)
        return found, statistics.mean(shares)

    def _shown(self, talk: Talk, question: Question, prompt: Prompt) -> Shown:
        messages = {stored.position: stored for stored in talk.messages}
        return shown_evidence(question, prompt, messages)

    def _ask(
        self,
        talk: Talk,
        question: Question,
        hits: Sequence[Hit],
        budget: Budget,
        window: Sequence[StoredMessage],
    ) -> Prompt:
        head = len(talk.messages) + 1
        asked = StoredMessage(
            id=MessageId(head),
            branch_id=BranchId(1),
            position=head,
            message=Message(role=Role.USER, parts=(TextPart(text=question.text),)),
            origin=Origin.SAID,
            created_at=talk.messages[-1].created_at,
        )
        view = BranchView(
            branch_id=BranchId(1),
            head=head,
            pins=(),
            turns=group_turns([*window, asked]),
            hits=tuple(hits),
        )
        return Assembler(self._counter, budget).assemble(view)


def _figures(found: Found) -> dict[str, dict[str, float]]:
    return {str(budget): _means(shown) for budget, shown in found.items()}


def _means(shown: Sequence[Shown]) -> dict[str, float]:
    return {
        "recall": round(statistics.mean(one.recall for one in shown), 4),
        "recall_all": round(statistics.mean(one.recall == 1 for one in shown), 4),
        "recall_strict": round(statistics.mean(one.strict for one in shown), 4),
        "passages": round(statistics.mean(one.passages for one in shown), 1),
    }


def _kinds(found: Found) -> dict[str, dict[str, dict[str, float]]]:
    """Give the figures apart for each kind of question and budget."""
    names = sorted({one.kind for shown in found.values() for one in shown})
    return {
        name: {
            str(budget): _means([one for one in shown if one.kind == name])
            for budget, shown in found.items()
        }
        for name in names
    }


def _by_talk(talks: Sequence[Talk], shown: Sequence[Shown]) -> dict[str, float]:
    by_talk, begin = {}, 0
    for talk in talks:
        end = begin + len(talk.questions)
        by_talk[talk.name] = round(statistics.mean(one.recall for one in shown[begin:end]), 4)
        begin = end
    return by_talk


def _loss(named: Found, roles: Found) -> dict[str, float]:
    one, other = _figures(named), _figures(roles)
    return {budget: round(one[budget]["recall"] - other[budget]["recall"], 4) for budget in one}


def _print_table(title: str, found: Found) -> None:
    heading = "recall / strict"
    print(f"\n{title}\n{heading:>20}" + "".join(f"{budget:>16}" for budget in found))
    counts = "".join(f"{one['passages']:>16}" for one in _figures(found).values())
    print(f"{'passages':>20}{counts}")
    rows: Mapping[str, Any] = {"all": _figures(found)} | _kinds(found)
    for name, row in rows.items():
        cells = (f"{one['recall']:.4f} / {one['recall_strict']:.4f}" for one in row.values())
        print(f"{name:>20}" + "".join(f"{cell:>18}"[-16:] for cell in cells))


if __name__ == "__main__":
    main()
