"""
Damage every column of every table in several ways, and see what each public call does then.

    python benchmarks/corruption_sweep.py [--tables message,branch] [--quick]

A call on the damaged session may fail with an error of the package; calls on another session of the
same user, on another user's, and on all users together may not change at all. The columns are those
of the schema, so that a new table is swept as soon as it is there. The last line is JSON:
``raw_errors`` are those that are none of the package's, ``others_harmed`` calls elsewhere that
failed or returned something else than before.
"""

import argparse
import asyncio
import json
import logging
import re
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Column, LargeBinary, Table, Text

from agentmem import AgentMemError, Budget, Memory, PinTask, Policy, ToolCall
from agentmem.retrieval import HybridRetriever
from agentmem.store.base import Base
from agentmem.store.columns import UtcDateTime
from agentmem.testing import HashingEmbedder, ScriptedModel

HURT, BESIDE, OTHER = "hurt", "beside", "other"
SHARED = {"owner"}
"""Tables whose rows belong to all sessions of a user: damage there may reach those."""

NUMBERS = {"negative": -7, "huge": 2**62, "text": "abc", "fraction": 2.5, "blob": b"\xff\xfe"}
TEXTS = {
    "empty": "",
    "cut": '{"a": [1, "b',
    "list": "[1, 2]",
    "number": 7,
    "blob": b"\xff\xfe",
    "not utf-8": "CAST(x'C3286869' AS TEXT)",
    "surrogate": '["\\ud800"]',
    "unknown": "unheard-of",
    "huge": "x" * 100_000,
    "deep": "[" * 5_000,
}
MOMENTS = {"words": "yesterday", "number": 5, "empty": "", "far": "9999-99-99 99:99:99.000000"}
BLOBS = {"empty": b"", "odd": b"\x01\x02\x03", "text": "abc", "number": 2**40}

Calls = dict[str, Callable[[], Any]]


def open_memory(path: Path) -> Memory:
    """Open the database with all that can read it."""
    return Memory.open(
        f"sqlite:///{path}",
        model=ScriptedModel(["an answer about the weather"] * 200),
        retriever=HybridRetriever(HashingEmbedder(dimension=16)),
        budget=Budget(context=150, reply=16),
        policy=Policy(auto_pin=PinTask(), recall_sessions=True),
    )


def fill(path: Path) -> None:
    """Say something of every kind, so that each table has rows of the session to be damaged."""
    with open_memory(path) as memory:
        for key, user in ((HURT, "u"), (BESIDE, "u"), (OTHER, "v")):
            session = memory.session(key, user=user, timezone="Europe/Berlin")
            session.pin("role", f"You are {key}.")
            session.append("user", f"{key} wants a hotel in Lisbon", client_key="first")
            session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])
            session.append("tool", f"{key}: three hotels", tool_call_id="c1")
            session.append("assistant", f"{key} may choose the first hotel")
            for index in range(9):
                session.append("user", f"{key} asks question {index} about {index} trains")
                session.reply()
            with session.subtask("compare") as task:
                task.append("user", f"{key} compares two hotels")
                task.assemble()
                task.promote(f"{key}: the second hotel is cheaper")
            session.assemble()
        memory.wait_for_index(20)


def damages(column: Column[Any]) -> Iterator[tuple[str, object]]:
    """Give the kinds of damage that fit the type of a column."""
    kinds: dict[str, Any] = NUMBERS
    if isinstance(column.type, UtcDateTime):
        kinds = MOMENTS
    elif isinstance(column.type, LargeBinary):
        kinds = BLOBS
    elif isinstance(column.type, Text):
        kinds = TEXTS
    yield from kinds.items()
    if column.nullable:
        yield "null", None
    if column.foreign_keys:
        yield "nowhere", 987_654


# ruff: noqa: S608 - the names in the statements are those of the package's own schema


def rows_of(path: Path, table: Table) -> list[int]:
    """Find rows of the session to be damaged: the first and one in the middle."""
    branches = "SELECT id FROM branch WHERE session_id = 1"
    tests = {
        "branch_id": f"branch_id IN ({branches})",
        "session_id": "session_id = 1",
        "assembly_id": f"assembly_id IN (SELECT id FROM assembly WHERE branch_id IN ({branches}))",
        "message_id": f"message_id IN (SELECT id FROM message WHERE branch_id IN ({branches}))",
        "pin_id": "pin_id IN (SELECT id FROM pin WHERE session_id = 1)",
    }
    test = next((text for name, text in tests.items() if name in table.columns), "1 = 1")
    if table.name == "session":
        test = "id = 1"
    connection = sqlite3.connect(path)
    found = [row[0] for row in connection.execute(f"SELECT rowid FROM {table.name} WHERE {test}")]
    connection.close()
    return sorted({found[0], found[len(found) // 2], found[-1]}) if found else []


def damage(path: Path, table: Table, column: str, row: int, value: object) -> bool:
    """Write *value* behind the back of the package; tell whether the database took it."""
    connection = sqlite3.connect(path)
    is_expression = isinstance(value, str) and value.startswith("CAST(")
    place = value if is_expression else "?"
    given = [row] if is_expression else [value, row]
    statement = f'UPDATE {table.name} SET "{column}" = {place} WHERE rowid = ?'
    try:
        with connection:
            connection.execute("PRAGMA ignore_check_constraints = ON")
            return connection.execute(statement, given).rowcount == 1
    except sqlite3.Error:
        return False
    finally:
        connection.close()


def reading_calls(memory: Memory, key: str, user: str) -> Calls:
    """Every call that reads one session, without what is random or a matter of time."""

    def session() -> Any:
        return memory.find(key, user=user)

    return {
        "messages": lambda: session().messages(),
        "at": lambda: session().at(5).messages(),
        "at pins": lambda: session().at(5).pins(),
        "pins": lambda: session().pins(),
        "pin_history": lambda: session().pin_history("role"),
        "branches": lambda: session().branches(),
        "branch": lambda: session().branch.head,
        "info": lambda: session().info,
        "summaries": lambda: session().summaries(),
        "truncations": lambda: session().truncations(),
        "assemblies": lambda: session().assemblies(),
        "check": lambda: session().check(),
        "audit": lambda: session().audit(),
        "history": lambda: [session().history(one.id).messages() for one in session().branches()],
        "search": lambda: texts(session().search("hotel")),
        "search everywhere": lambda: [
            text
            for text in texts(session().search("hotel", everywhere=True, limit=50))
            if key in text
        ],
        "assemble": lambda: session().assemble().token_ids[:10],
        "assemble for": lambda: session().assemble(query="hotel").head,
        "index_status": lambda: memory.index_status(user=user, key=key).num_messages,
        "amessages": lambda: asyncio.run(session().amessages()),
    }


def writing_calls(memory: Memory, key: str, user: str, folder: Path) -> Calls:
    """Every call that changes one session; the last ones take it away."""

    def session() -> Any:
        return memory.find(key, user=user)

    return {
        "retry": lambda: session().append(
            "user", f"{key} wants a hotel in Lisbon", client_key="first"
        ),
        "append": lambda: session().append("user", "one more question"),
        "reply": lambda: session().reply("and another").text,
        "fold": lambda: session().fold(),
        "pin": lambda: session().pin("role", "You are new."),
        "unpin": lambda: session().unpin("role"),
        "subtask": lambda: work(session()),
        "edit": lambda: session().edit(1, "another hotel"),
        "regenerate": lambda: session().regenerate().text,
        "export": lambda: memory.export(folder / f"{key}.jsonl", user=user, key=key),
        "rebuild_index": lambda: memory.rebuild_index(user=user, key=key).num_messages,
        **{
            f"delete_message {n}": lambda n=n: session().delete_message(n)  # type: ignore[misc]
            for n in (1, 2, 14)
        },
        "delete_pin": lambda: session().delete_pin("role"),
        "session": lambda: memory.session(key, user=user).key,
        "delete": lambda: memory.delete(key, user=user),
    }


def work(session: Any) -> None:
    """Do a piece of work in a subtask."""
    with session.subtask("again") as task:
        task.append("user", "work")
        task.assemble()
        task.promote("done")


def shared_calls(memory: Memory) -> Calls:
    """Every call over all sessions of a user, or all users."""
    return {
        "sessions": lambda: [one.key for one in memory.sessions(user="u") if one.key == BESIDE],
        "sessions of another": lambda: [one.key for one in memory.sessions(user="v")],
        "purge": lambda: memory.purge(timedelta(days=1)),
        "wait_for_index": lambda: memory.wait_for_index(10),
    }


def texts(hits: Any) -> list[str]:
    """Give what was found, as a set of texts in order."""
    return sorted(hit.stored.message.text for hit in hits)


class Sweep:
    """Damages one thing after another, and counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clean = folder / "clean.db"
        fill(self.clean)
        self.counts: Counter[str] = Counter()
        self.by_table: dict[str, Counter[str]] = {}
        self.examples: list[str] = []
        self.expected = self._others(self._fresh())

    def damage(self, table: Table, column: str, row: int, kind: str, value: object) -> None:
        """Damage one column of one row, and make every call."""
        path = self._fresh()
        if not damage(path, table, column, row, value):
            return
        self.counts["damages"] += 1
        counts = self.by_table.setdefault(table.name, Counter())
        counts["damages"] += 1
        what = f"{table.name}.{column} ({kind}, row {row})"
        with open_memory(path) as memory:
            calls = reading_calls(memory, HURT, "u")
            for name, call in {**calls, **writing_calls(memory, HURT, "u", self.folder)}.items():
                self._try(f"{what}: {name}", call, counts)
        damage(self._fresh(), table, column, row, value)
        found = self._others(path)
        for name, (expected, got) in {
            name: (self.expected[name], got) for name, got in found.items()
        }.items():
            if got != expected and not (table.name in SHARED and f"{OTHER}:" not in name):
                counts["others harmed"] += 1
                self.counts["others_harmed"] += 1
                self.examples.append(f"{what}: {name}: {str(got)[:150]}, not {str(expected)[:80]}")

    def _fresh(self) -> Path:
        """Copy the database as it was filled."""
        path = self.folder / "damaged.db"
        for old in self.folder.glob("damaged.db*"):
            shutil.rmtree(old) if old.is_dir() else old.unlink()
        shutil.copy(self.clean, path)
        return path

    def _try(self, what: str, call: Callable[[], Any], counts: Counter[str]) -> None:
        self.counts["calls"] += 1
        try:
            call()
        except AgentMemError as error:
            counts[f"{type(error).__name__}"] += 1
        # What a sweep is for: whatever is not of the package's tree.
        except Exception as error:  # noqa: BLE001 - as above
            counts["raw"] += 1
            self.counts["raw_errors"] += 1
            self.examples.append(f"{what}: {type(error).__name__}: {str(error)[:150]}")

    def _others(self, path: Path) -> dict[str, Any]:
        """Make every call on what was not damaged, and give what each returns."""
        found: dict[str, Any] = {}
        with open_memory(path) as memory:
            calls = shared_calls(memory)
            for key, user in ((BESIDE, "u"), (OTHER, "v")):
                mine = {
                    **reading_calls(memory, key, user),
                    **writing_calls(memory, key, user, self.folder),
                }
                calls |= {f"{key}: {name}": call for name, call in mine.items()}
            for name, call in calls.items():
                try:
                    found[name] = shown(call())
                # As in `_try`; what is wanted is that nothing is different.
                except Exception as error:  # noqa: BLE001 - as above
                    # The ids of new branches follow the damaged one, which harms nothing.
                    words = re.sub(r"branch \d+", "branch N", str(error))
                    found[name] = f"{type(error).__name__}: {words}"
        return found


def shown(value: Any) -> Any:
    """Give of a value what is the same in each run: no ids, times or token counts."""
    if isinstance(value, tuple | list):
        return [shown(one) for one in value]
    message = getattr(value, "message", None)
    if message is not None and hasattr(value, "position"):
        return (value.position, str(message.role), message.text)
    return value if isinstance(value, str | int | bool | None) else type(value).__name__


def main() -> int:
    """Run the sweep and print what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", help="only these, with commas between them")
    parser.add_argument("--quick", action="store_true", help="one row of each table")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        sweep = Sweep(Path(folder))
        for table in Base.metadata.sorted_tables:
            if options.tables is None or table.name in options.tables.split(","):
                sweep_table(sweep, table, is_quick=options.quick)
    report(sweep)
    return 1 if sweep.counts["raw_errors"] or sweep.counts["others_harmed"] else 0


def sweep_table(sweep: Sweep, table: Table, *, is_quick: bool) -> None:
    """Damage each column of a table in each way."""
    rows = rows_of(sweep.clean, table)
    for row in rows[len(rows) // 2 :][:1] if is_quick else rows:
        for column in table.columns:
            for kind, value in damages(column):
                sweep.damage(table, column.name, row, kind, value)
        print(f"{table.name} done", file=sys.stderr, flush=True)


def report(sweep: Sweep) -> None:
    """Print a table, examples of what went wrong, and the numbers as JSON."""
    for name, counts in sweep.by_table.items():
        print(f"{name:12}", ", ".join(f"{kind} {num}" for kind, num in sorted(counts.items())))
    for example in sweep.examples[:200]:
        print(" ", example)
    keys = ("damages", "calls", "raw_errors", "others_harmed")
    print(json.dumps({key: sweep.counts[key] for key in keys}))


if __name__ == "__main__":
    sys.exit(main())
