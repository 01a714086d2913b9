"""
Edit a database behind the library's back, and see who names it: check, import or outside head.

    python benchmarks/integrity_edits.py [--sqlite-only]

Nine edits are made to messages, accounts of prompts, truncation records, summaries, pins of a
session and pins of a user, each to a fresh state: content, cut tail, deleted middle, reorder,
forged insert, replay of another session, rollback, metadata, and an older copy of the whole
database. The table says who named each; the last line is JSON: ``missed`` are edits that neither
``check(integrity=True)`` nor, for an older copy of all, a head from outside has named, and
``not_imported`` is how many exports of an edited database were refused.
"""

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table, create_engine, delete, event, insert, select, update

from agentmem import AgentMemError, Budget, Memory
from agentmem.store.database.schema import Base
from agentmem.testing import WordCounter

TABLES: Mapping[str, Table] = Base.metadata.tables
WORDS = (
    *("tower", "river", "market", "bridge", "castle", "garden", "museum", "harbour", "tram"),
    *("hill", "church", "square", "library", "palace", "beach", "station", "theatre", "island"),
)
ONLY_ALL = "snapshot"
Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Rows of one kind in their order: which columns say where one stands, and which what it is."""

    table: str
    place: Sequence[str]
    content: str
    metadata: str


SERIES = {
    "messages": Series(
        table="message", place=("id", "branch_id", "position"), content="parts", metadata="role"
    ),
    "prompts": Series(
        table="assembly", place=("id", "branch_id"), content="layout", metadata="created_at"
    ),
    "records": Series(
        table="truncation",
        place=("id", "assembly_id"),
        content="destination",
        metadata="num_tokens",
    ),
    "summaries": Series(
        table="summary", place=("branch_id", "key"), content="text", metadata="author"
    ),
    "session pins": Series(
        table="pin_version", place=("pin_id", "version"), content="text", metadata="author"
    ),
    "user pins": Series(
        table="pin_version", place=("pin_id", "version"), content="text", metadata="created_at"
    ),
}


class Bench:
    """A database, what was stored in it by the library, and a connection past the library."""

    def __init__(self, url: str) -> None:
        self.url = url
        with open_memory(url) as memory:
            for user in ("bob", "ann"):
                fill(memory, user, turns=24)
            self.old = self.raw(snapshot)
            for user in ("bob", "ann"):
                fill(memory, user, turns=2)
            self.head = memory.find("trip", user="ann").head()
        self.clean = self.raw(snapshot)

    def raw(self, work: Callable[[Connection], Any]) -> Any:
        """Run *work* in a transaction that no code of the library sees."""
        engine = create_engine(self.url)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys = ON"))
        try:
            with engine.begin() as connection:
                return work(connection)
        finally:
            engine.dispose()

    def named_by(self, file: Path) -> dict[str, bool]:
        """Ask everybody what they think of the database as it is now."""
        with open_memory(self.url) as memory:
            session = memory.find("trip", user="ann")
            found = {
                "check": bool(session.check()),
                "integrity": bool(session.check(integrity=True)),
                "head": bool(session.check(head=self.head)),
                "import": True,
            }
            with suppress(AgentMemError):
                memory.export(file, user="ann")
                with Memory.open("sqlite://") as other:
                    other.load(file)
                    found["import"] = False
        return found


def open_memory(url: str) -> Memory:
    """Open the database with a window that is soon full."""
    return Memory.open(url, counter=WordCounter(), budget=Budget(context=500, reply=20))


def fill(memory: Memory, user: str, *, turns: int) -> None:
    """Say something, pin something, and assemble, so that each series has several rows."""
    session = memory.session("trip", user=user)
    for number in range(turns):
        start = session.branch.head
        session.append("user", said(start, user))
        session.assemble()
        session.assemble(budget=Budget(context=300, reply=20))
        session.append("assistant", said(start + 1, user))
        if number < 3:
            session.pin("role", f"You are guide {start} of {user}.")
            session.pin("home", f"{user} lives at number {start}.", scope="user")


def said(number: int, user: str) -> str:
    """Make two sentences that are like no others."""
    words = [f"{WORDS[(number * 7 + index * index) % len(WORDS)]}" for index in range(22)]
    return f"{user.title()} saw {' '.join(words[:11])}. On day {number} {' '.join(words[11:])}."


def snapshot(connection: Connection) -> dict[str, list[Row]]:
    """Read every row of every table."""
    return {
        table.name: [dict(row) for row in connection.execute(select(table)).mappings()]
        for table in Base.metadata.sorted_tables
    }


def restore(rows: Mapping[str, list[Row]], connection: Connection) -> None:
    """Put back every row of every table."""
    for table in reversed(Base.metadata.sorted_tables):
        connection.execute(delete(table))
    for table in Base.metadata.sorted_tables:
        if rows[table.name]:
            connection.execute(insert(table), rows[table.name])


def rows_of(connection: Connection, name: str, user: str) -> list[Row]:
    """Read a series of a user's session, in its order."""
    series, tables = SERIES[name], TABLES
    owner = select(tables["owner"].c.id).where(tables["owner"].c.user == user).scalar_subquery()
    session = tables["session"].c
    branches = select(tables["branch"].c.id).where(
        tables["branch"].c.session_id.in_(select(session.id).where(session.owner_id == owner))
    )
    table = tables[series.table]
    if series.table == "truncation":
        prompts = tables["assembly"].c
        mine = table.c.assembly_id.in_(select(prompts.id).where(prompts.branch_id.in_(branches)))
    elif series.table == "pin_version":
        pins, scope = tables["pin"].c, name.partition(" ")[0]
        of_scope = select(pins.id).where(pins.owner_id == owner, pins.scope == scope)
        mine = table.c.pin_id.in_(of_scope)
    else:
        mine = table.c.branch_id.in_(branches)
    order = [table.c[column] for column in series.place[::-1]]
    if series.table in {"assembly", "truncation"}:
        order = [table.c.id]
    if series.table == "summary":
        order = [table.c.first, table.c.key]
    return [
        dict(row)
        for row in connection.execute(select(table).where(mine).order_by(*order)).mappings()
    ]


class Edits:
    """The edits of one series, each made by somebody who knows the tables and not the chain."""

    def __init__(self, name: str, connection: Connection) -> None:
        self._connection = connection
        self._series = SERIES[name]
        self._table = TABLES[self._series.table]
        self._rows = rows_of(connection, name, "ann")
        self._others = rows_of(connection, name, "bob")
        assert len(self._rows) > 2, f"too few rows of {name}: {len(self._rows)}"

    def content(self) -> None:
        self._change(1, **{self._series.content: self._forged(self._rows[1])})

    def cut_tail(self) -> None:
        self._delete(len(self._rows) - 1)
        self._count(-1)

    def deleted_middle(self) -> None:
        self._delete(1)

    def reorder(self) -> None:
        first, second = (self._said(self._rows[index]) for index in (0, 1))
        self._change(0, **second)
        self._change(1, **first)

    def forged_insert(self) -> None:
        last = self._rows[-1]
        self._insert({**self._said(last), self._series.content: self._forged(last)})

    def replay(self) -> None:
        self._insert(self._said(self._others[-1]))

    def replay_in_place(self) -> None:
        self._change(1, **self._said(self._others[1]))

    def rollback(self) -> None:
        for index in (len(self._rows) - 1, len(self._rows) - 2):
            self._delete(index)
        self._count(-2)

    def metadata(self) -> None:
        value = self._rows[1][self._series.metadata]
        other: Any = "assistant" if value == "user" else "user"
        if isinstance(value, int):
            other = value + 1
        elif hasattr(value, "year"):
            other = value - timedelta(days=365)
        self._change(1, **{self._series.metadata: other})

    def _forged(self, row: Row) -> str:
        text = str(row[self._series.content])
        return text.replace("1", "2").replace("3", "4") + (
            "" if "1" in text or "3" in text else "!"
        )

    def _said(self, row: Row) -> Row:
        return {name: value for name, value in row.items() if name not in self._series.place}

    def _at(self, row: Row) -> list[Any]:
        keys = [column.name for column in self._table.primary_key.columns]
        return [self._table.c[name] == row[name] for name in keys]

    def _change(self, index: int, **values: Any) -> None:
        changed = update(self._table).where(*self._at(self._rows[index])).values(**values)
        self._connection.execute(changed)

    def _delete(self, index: int) -> None:
        self._connection.execute(delete(self._table).where(*self._at(self._rows[index])))

    def _insert(self, said: Row) -> None:
        """Write a row behind the last one."""
        last = self._rows[-1]
        place = {name: last[name] for name in self._series.place if name != "id"}
        if "position" in place:
            place["position"] += 1
        if "version" in place:
            place["version"] += 1
        if "key" in place:
            place["key"] = "f" * 12
        self._connection.execute(insert(self._table).values(**place, **said))
        self._count(1)

    def _count(self, change: int) -> None:
        """Change what counts the rows elsewhere, as they who edit would."""
        last, count = self._rows[-1], (TABLES["branch"], "head", "branch_id")
        if self._series.table == "pin_version":
            count = (TABLES["pin"], "version", "pin_id")
        elif self._series.table != "message":
            return
        table, name, key = count
        values = {name: table.c[name] + change}
        self._connection.execute(update(table).where(table.c.id == last[key]).values(**values))


EDITS = (
    "content",
    "cut_tail",
    "deleted_middle",
    "reorder",
    "forged_insert",
    "replay",
    "replay_in_place",
    "rollback",
    "metadata",
)


def results(url: str, folder: Path) -> list[tuple[str, str, dict[str, bool]]]:
    """Make each edit, and say who named it."""
    bench = Bench(url)
    nothing = bench.named_by(folder / "clean.jsonl")
    assert not any(nothing.values()), f"what was not edited is named: {nothing}"
    found = []
    for name in SERIES:
        for edit in EDITS:
            bench.raw(
                lambda connection, name=name, edit=edit: getattr(Edits(name, connection), edit)()
            )
            found.append((name, edit, bench.named_by(folder / "edited.jsonl")))
            bench.raw(partial(restore, bench.clean))
    bench.raw(partial(restore, bench.old))
    found.append(("all", ONLY_ALL, bench.named_by(folder / "old.jsonl")))
    return found


def missed(found: Sequence[tuple[str, str, dict[str, bool]]]) -> list[str]:
    """Return the edits that should have been named and were not."""
    return [
        f"{edit} of {name}"
        for name, edit, by in found
        if not by["head"] or not (by["integrity"] or edit == ONLY_ALL)
    ]


def main() -> int:
    """Print the table of both databases, then one JSON object."""
    from bench_store import postgres  # noqa: PLC0415 - loads what starts a server
    from report import print_json  # noqa: PLC0415 - as above

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sqlite-only", action="store_true")
    options = parser.parse_args()
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        found = {"sqlite": results(f"sqlite:///{folder / 'agent.db'}", folder)}
        if not options.sqlite_only:
            with postgres(folder / "data") as url:
                found["postgres"] = results(url, folder)
    for database, rows in found.items():
        print(f"{database:28}{'check':>10}{'integrity':>11}{'import':>10}{'head':>10}")
        for name, edit, by in rows:
            cells = (
                ("named" if by[who] else "-") for who in ("check", "integrity", "import", "head")
            )
            print(f"{name:13}{edit:15}" + "".join(f"{cell:>10}" for cell in cells))
        figures[database] = {
            "edits": len(rows),
            "named_by_integrity": sum(by["integrity"] for _, _, by in rows),
            "not_imported": sum(by["import"] for _, _, by in rows),
            "named_by_head": sum(by["head"] for _, _, by in rows),
            "missed": missed(rows),
        }
    print_json(figures)
    return 1 if any(one["missed"] for one in figures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
