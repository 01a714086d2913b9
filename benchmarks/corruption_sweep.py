"""
Damage every column of every table in several ways, and see what each public call does then.

    python benchmarks/corruption_sweep.py [--tables message,branch] [--quick] [--rows 3]
                                          [--jobs 2] [--postgres postgresql://superuser@host/name]

A call on the damaged session may fail with an error of the package; calls on another session of the
same user, on another user's, and on all users together may not change at all. Tables and columns
are those of the schema, and calls those of the public classes and of the command line: one that is
forgotten is an error. The last line is JSON: ``raw_errors`` are those that are none of the
package's, ``others_harmed`` calls elsewhere that failed or returned something else than before.
"""

import argparse
import json
import logging
import re
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from corruption_calls import (
    BESIDE,
    OTHER,
    Calls,
    final_calls,
    hurt_calls,
    missing,
    open_memory,
    reading_calls,
    shared_calls,
    writing_calls,
)
from corruption_databases import GONE, ROW, Postgres, Sqlite, damages, schema_tables
from sqlalchemy import Table

from agentmem import AgentMemError, Memory

WHOLE = {"alembic_version", "compatibility"}
"""Tables of the database as a whole: damage there may reach all."""
OF_USER = {"owner", "user_event"}
"""Tables whose rows belong to all sessions of a user: damage there may reach those."""

OTHERS_WRITE = ("Session.append", "Session.reply", "Memory.export", "Session.delete_message 1")
"""What is written elsewhere in a quick sweep."""
KEYS = ("damages", "calls", "raw_errors", "others_harmed")

Task = tuple[str, str | None, str, bool, int]


class Sweep:
    """Damages one thing after another, and counts."""

    def __init__(self, database: Sqlite | Postgres, *, is_quick: bool = False) -> None:
        self.database = database
        self.is_quick = is_quick
        database.fill()
        self.tables = schema_tables()
        self.counts: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()
        self.examples: list[str] = []
        self.names: set[str] = set()
        self.expected: dict[str, Any] = {}
        self.expected = self._run(None, database.fresh())
        self.num_calls_each = self.counts["calls"]
        self.counts.clear()
        self.errors.clear()

    def table(self, name: str, *, num_rows: int = 1, kinds: set[str] | None = None) -> None:
        """Damage each column of a table in each way, in one row of the session or in three."""
        table = self.tables[name]
        rows = self.database.rows(table)
        if not rows:
            raise RuntimeError(f"the table {name} has no row to damage")
        middle = rows[len(rows) // 2]
        for row in [middle] if num_rows == 1 else sorted({rows[0], middle, rows[-1]}):
            for column in table.columns:
                for kind, value in damages(column, postgres=self.database.is_postgres):
                    if kinds is None or kind in kinds:
                        self.damage(table, column.name, row, kind, value)
            self.damage(table, ROW, row, "gone", GONE)

    def damage(self, table: Table, column: str, row: Any, kind: str, value: object) -> None:
        """Damage one column of one row, and make every call."""
        url = self.database.fresh()
        if not self.database.damage(table, column, row, value):
            return
        self.counts["damages"] += 1
        what = f"{table.name}.{column} ({kind}, row {row})"
        found = self._run(what, url)
        for name, expected in self.expected.items():
            got = found.get(name)
            is_shared = table.name in WHOLE or (
                table.name in OF_USER and not name.startswith(OTHER) and "other" not in name
            )
            if got != expected and not is_shared:
                self.counts["others_harmed"] += 1
                self.examples.append(f"{what}: {name}: {got!s:.300}, not {expected!s:.300}")

    def _run(self, what: str | None, url: str) -> dict[str, Any]:
        """Make all calls on one database; return what those on other sessions returned."""
        found: dict[str, Any] = {}
        opened: list[Memory] = []
        folder = self.database.folder
        self._try(f"{what}: open", lambda: opened.append(open_memory(url)))
        if not opened:
            return found
        memory = opened[0]
        hurt = hurt_calls(memory, url, folder, is_quick=self.is_quick)
        for name, call in hurt.items():
            self._try(f"{what}: {name}", call)
        final = final_calls(memory)
        for name, call in self._others(memory, folder).items():
            found[name] = self._try(f"{what}: {name}", call)
        for name, call in final.items():
            result = self._try(f"{what}: {name}", call)
            if name == "Memory.purge all":
                found[f"{OTHER}: {name}"] = result
        self._try(f"{what}: close", memory.close)
        self.names |= {*hurt, *final, *(name.partition(": ")[2] or name for name in found)}
        return found

    def _others(self, memory: Memory, folder: Path) -> Calls:
        calls = shared_calls(memory)
        for key in (BESIDE, OTHER):
            mine = reading_calls(memory, key)
            writing = writing_calls(memory, key, folder)
            mine |= {name: writing[name] for name in (OTHERS_WRITE if self.is_quick else writing)}
            calls |= {f"{key}: {name}": call for name, call in mine.items()}
        return calls

    def _try(self, what: str, call: Callable[[], Any]) -> Any:
        self.counts["calls"] += 1
        try:
            return shown(call())
        except AgentMemError as error:
            self.errors[type(error).__name__] += 1
            # The ids of new branches and of prompts follow those of the damaged session.
            words = re.sub(r"(branch|prompt) \d+", r"\1 N", str(error))
            return f"{type(error).__name__}: {words}"
        # What a sweep is for: whatever is not of the package's tree.
        except Exception as error:  # noqa: BLE001 - as above
            self.errors["raw"] += 1
            self.counts["raw_errors"] += 1
            last = traceback.extract_tb(error.__traceback__)[-3:]
            where = " < ".join(f"{Path(f.filename).name}:{f.lineno}" for f in reversed(last))
            said = f"{type(error).__name__}: {str(error)[:150]} ({where})"
            self.examples.append(f"{what}: {said}")
            return said


def shown(value: Any) -> Any:
    """Return of a value what is the same in each run: no ids, times or token counts."""
    if isinstance(value, tuple | list):
        return [shown(one) for one in value]
    message = getattr(value, "message", None)
    if message is not None and hasattr(value, "position"):
        return (value.position, str(message.role), message.text)
    problem = getattr(value, "problem", None)
    if problem is not None:
        return str(problem)
    return value if isinstance(value, str | int | bool | None) else type(value).__name__


def sweep_one(task: Task) -> dict[str, Any]:
    """Sweep one table in a process of its own."""
    folder, postgres, name, is_quick, num_rows = task
    logging.disable(logging.CRITICAL)
    sweep = Sweep(_database(Path(folder), postgres), is_quick=is_quick)
    sweep.table(name, num_rows=num_rows)
    return {
        "table": name,
        "columns": len(sweep.tables[name].columns),
        "counts": sweep.counts,
        "errors": sweep.errors,
        "examples": sweep.examples,
        "missing": [] if is_quick else missing(sweep.names),
        "unknown": sorted(set(sweep.database.tables()) - set(sweep.tables)),
        "calls_each": sweep.num_calls_each,
    }


def _database(folder: Path, postgres: str | None) -> Sqlite | Postgres:
    return Sqlite(folder) if postgres is None else Postgres(folder, postgres)


def main() -> int:
    """Run the sweep and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", help="only these, with commas between them")
    parser.add_argument("--quick", action="store_true", help="no coroutine forms, no commands")
    parser.add_argument("--rows", type=int, choices=(1, 3), default=1, help="of each table")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; 1 on PostgreSQL")
    parser.add_argument("--postgres", help="URL of a superuser's database, beside which others are")
    options = parser.parse_args()
    wanted = options.tables.split(",") if options.tables else list(schema_tables())
    # In memory, where that is a place: each damage is a database of its own.
    memory = Path("/dev/shm")  # noqa: S108 - only the parent of a folder that nobody else has
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as place:
        tasks: list[Task] = []
        for name in wanted:
            folder = Path(place) / name
            folder.mkdir()
            tasks.append((str(folder), options.postgres, name, options.quick, options.rows))
        jobs = 1 if options.postgres else options.jobs
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            print(f"{'table':16} {'columns':>8}", *(f"{key:>13}" for key in KEYS), " errors")
            results = [print_table(one) for one in pool.map(sweep_one, tasks)]
    return report(results)


def print_table(one: dict[str, Any]) -> dict[str, Any]:
    """Print what was found of one table."""
    kinds = ", ".join(f"{kind} {num}" for kind, num in sorted(one["errors"].items()))
    cells = (f"{one['counts'][key]:13}" for key in KEYS)
    print(f"{one['table']:16} {one['columns']:8}", *cells, "", kinds, flush=True)
    for example in one["examples"][:60]:
        print("   ", example, flush=True)
    return one


def report(results: list[dict[str, Any]]) -> int:
    """Print what was not swept, and the numbers of all tables as JSON."""
    lacking = sorted({name for one in results for name in one["missing"]})
    unknown = sorted({name for one in results for name in one["unknown"]})
    for what in [*lacking, *(f"table {name}" for name in unknown)]:
        print("not swept:", what)
    sums = {key: sum(one["counts"][key] for one in results) for key in KEYS}
    facts = {
        "raw_errors": sums["raw_errors"],
        "others_harmed": sums["others_harmed"],
        "tables": len(results),
        "columns": sum(one["columns"] for one in results),
        "damages": sums["damages"],
        "calls": sums["calls"],
        "calls_each": max(one["calls_each"] for one in results),
        "not_swept": len(lacking) + len(unknown),
    }
    print(json.dumps(facts))
    return 1 if facts["raw_errors"] or facts["others_harmed"] or facts["not_swept"] else 0


if __name__ == "__main__":
    sys.exit(main())
