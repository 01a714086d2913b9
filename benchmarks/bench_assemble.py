"""
Measures what assembling a prompt costs, and how much of it stays the same from turn to turn.

Growth: `Session.assemble()` in sessions of 100 and 10,000 turns (without --quick of 100,000 too),
SQLite, a budget of 4,096 tokens, the real tokenizer, in the steady state: after each appended
turn. A good ``growth_10k_over_100`` is at most 1.5.

Replay: a conversation is said turn by turn and a prompt is assembled for each. The share of its
tokens that it has in common with the prompt before is to be 0.93 on average, with 70 % of the
budget used. With a quarter of the budget given to recalled messages it is to be 0.70 with these
at the tail; ``kept`` is with these kept where they were first shown. ``whole`` is the mean over
the whole conversation, ``shared`` that from the first prompt on that had to leave something out
(so are ``p10``, ``used`` and the ``prefix_share`` figures). With --data FILE the
conversations of a LoCoMo file are replayed, else one that is made up here.

Beside peers: with --peers also the same session of 10,000 turns under LangChain's `trim_messages`
with the same exact tokenizer, and OpenAI Agents' `SQLAlchemySession` reading its last 60 messages
from SQLite. All three are measured in turns. A good ``langchain_over_ours`` is at least 50, a good
``ours_over_openai_agents`` at most 1.5. The peers are installed by `make peers`.

    python benchmarks/bench_assemble.py [--quick] [--data FILE] [--peers]
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from peers import Peers, Runs, compare, print_table, what_is_missing
from replaying import ROLE, WAYS, replay, talks
from report import print_json

from agentmem import Budget, Memory, Session
from agentmem.inference import DEFAULT_MODEL, LocalModel
from agentmem.inference.weights.find import find_model
from agentmem.protocols import TokenCounter
from agentmem.types import BranchId, Message, Role, Scope, TextPart

BUDGET = Budget(context=4096, reply=512, retrieved=0)
PLACES = ("Sintra", "Cascais", "Belem", "Setubal", "Evora", "Porto", "Coimbra", "Faro")


def main() -> None:
    """Measure, print tables, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter sessions, one replay")
    parser.add_argument("--data", type=Path, help="a file in LoCoMo's format")
    parser.add_argument("--peers", action="store_true", help="measure others on the same session")
    options = parser.parse_args()
    if options.peers and (hint := what_is_missing()) is not None:
        parser.exit(2, f"{hint}\n")
    with LocalModel.load(DEFAULT_MODEL) as model, tempfile.TemporaryDirectory() as folder:
        counter = model.counter
        sizes = (100, 10_000) if options.quick else (100, 10_000, 100_000)
        growth = measure_growth(Path(folder), counter, sizes)
        replays = _replay_all(Path(folder), counter, options.data, quick=options.quick)
        rounds = 4 if options.quick else 10
        beside = beside_peers(Path(folder), counter, rounds) if options.peers else {}
    _print_tables(growth, replays)
    if beside:
        print_table(beside["peers"])
    ratio = growth[10_000]["p50_ms"] / growth[100]["p50_ms"]
    figures = {"growth_10k_over_100": round(ratio, 3), "assemble": growth}
    print_json(figures | _replay_figures(replays) | beside)


def _print_tables(growth: dict[int, dict[str, float]], replays: Sequence[dict[str, Any]]) -> None:
    print(f"{'turns':>8} {'p50 ms':>8} {'p95 ms':>8}")
    for turns, row in growth.items():
        print(f"{turns:>8} {row['p50_ms']:>8} {row['p95_ms']:>8}")
    names = ("turns", "whole", "shared", "shared_p10", "used", "folds", "balances")
    print(f"{'recalled':>8}" + "".join(f" {name:>10}" for name in names))
    for row in replays:
        print(f"{row['way']:>8}" + "".join(f" {row[name]!s:>10}" for name in names))


def _replay_figures(replays: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Give the means over all conversations, apart for each way to recall."""
    plain = [row for row in replays if row["way"] == "none"]
    return {
        "prefix_share_mean": _mean(row["shared"] for row in plain),
        "prefix_share_p10": _mean(row["shared_p10"] for row in plain),
        "budget_used_mean": _mean(row["used"] for row in plain),
        "folds": sum(row["folds"] for row in plain),
        "prefix_share_recalled": {
            way: {
                part: _mean(row[part] for row in replays if row["way"] == way)
                for part in ("whole", "shared")
            }
            for way in ("tail", "kept")
        },
        "balances": all(row["balances"] for row in replays),
        "named_once": all(row["named_once"] for row in plain),
    }


def _replay_all(
    folder: Path, counter: TokenCounter, data: Path | None, *, quick: bool
) -> list[dict[str, Any]]:
    """Replay each conversation without recalled text, and in both ways with it."""
    made_up = [[message for number in range(300) for message in _turn(number)]]
    found = made_up if data is None else list(talks(data))
    return [
        replay(folder / f"{number}-{way}.db", counter, talk, BUDGET, way)
        for number, talk in enumerate(found[:1] if quick else found)
        for way in WAYS
    ]


def measure_growth(
    folder: Path, counter: TokenCounter, sizes: Sequence[int]
) -> dict[int, dict[str, float]]:
    """Time 50 assemblies in each of several sessions, in turns so that noise hits all alike."""
    times: dict[int, list[float]] = {size: [] for size in sizes}
    sessions: dict[int, Session] = {}
    memories = []
    for size in sizes:
        memory = Memory.open(f"sqlite:///{folder / f'{size}.db'}", counter=counter, budget=BUDGET)
        memories.append(memory)
        sessions[size] = memory.session("long")
        _fill(memory, sessions[size], size)
        sessions[size].assemble()
    for number in range(50):
        for size, session in sessions.items():
            _say_turn(session, size + number)
            started = time.perf_counter()
            session.assemble()
            times[size].append(time.perf_counter() - started)
    for memory in memories:
        memory.close()
    return {
        size: {
            "p50_ms": round(1000 * statistics.median(taken), 2),
            "p95_ms": round(1000 * statistics.quantiles(taken, n=20)[-1], 2),
        }
        for size, taken in times.items()
    }


def beside_peers(folder: Path, counter: TokenCounter, rounds: int) -> dict[str, Any]:
    """Time assemblies, reads and trims of one session in turns, while the session goes on."""
    runs: Runs = {"agentmem": [], "openai_agents": [], "langchain": [], "langchain_kept": []}
    memory = Memory.open(f"sqlite:///{folder / 'beside.db'}", counter=counter, budget=BUDGET)
    tokenizer = find_model(DEFAULT_MODEL, lambda _stage, _share: None) / "tokenizer.json"
    with memory, Peers(tokenizer, folder / "peers.db") as peers:
        session = memory.session("beside")
        session.pin("role", ROLE)
        _fill(memory, session, 10_000)
        talk = [message for number in range(10_000) for message in _turn(number)]
        peers.say([_message(Role.SYSTEM, ROLE), *talk])
        for start in range(10_000, 10_000 + 5 * (rounds + 1), 5):
            for number in range(start, start + 5):
                _say_turn(session, number)
                peers.say(_turn(number))
                runs["agentmem"].append(_assemble(session))
                runs["openai_agents"].append(peers.read(60))
            runs["langchain"].append(peers.trim(BUDGET.prompt))
            runs["langchain_kept"].append(peers.trim(BUDGET.prompt, is_kept=True))
            if start == 10_000:
                # The first round warms up.
                runs = {name: [] for name in runs}
    return compare(runs, peers.versions)


def _assemble(session: Session) -> dict[str, Any]:
    started = time.perf_counter()
    prompt = session.assemble()
    taken = time.perf_counter() - started
    return {"seconds": taken, "messages": len(prompt.messages), "tokens": prompt.num_tokens}


def _fill(memory: Memory, session: Session, turns: int) -> None:
    """Append the turns in large transactions: how they got there is not what is measured."""
    branch = BranchId(session.branch.id)
    for start in range(0, turns, 500):
        said = [
            message for number in range(start, min(start + 500, turns)) for message in _turn(number)
        ]
        memory._store.messages.append(Scope(), branch, said)  # noqa: SLF001 - in bulk


def _say_turn(session: Session, number: int) -> None:
    for message in _turn(number):
        session.append(message.role, message.text)


def _turn(number: int) -> tuple[Message, Message]:
    place = PLACES[number % len(PLACES)]
    question = f"What would day {number} in {place} cost us, with train and lunch for two people?"
    answer = (
        f"Day {number} in {place}: train {number % 37 + 4} EUR, lunch {number % 23 + 18} EUR. "
        "The museum is closed on Monday, and the last train back leaves before eleven."
    )
    return _message(Role.USER, question), _message(Role.ASSISTANT, answer)


def _message(role: Role, text: str) -> Message:
    return Message(role=role, parts=(TextPart(text=text),))


def _mean(values: Iterator[float]) -> float:
    return round(statistics.mean(values), 4)


if __name__ == "__main__":
    main()
