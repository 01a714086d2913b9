"""
The calls of the corruption sweep: everything public that reads or writes a database.

Each is named by class and method, or by the words of the command line. `missing` compares the names
with what the classes and the command line have, so that a new call cannot be left out.
"""

import asyncio
import contextlib
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import typer

from agentmem import (
    Budget,
    Memory,
    PinTask,
    Policy,
    Session,
    SessionNotFoundError,
    Subtask,
    ToolCall,
)
from agentmem.cli.app import app
from agentmem.memory.history import History
from agentmem.memory.snapshot import Snapshot
from agentmem.retrieval import HybridRetriever
from agentmem.testing import HashingEmbedder, ScriptedModel

HURT, BESIDE, OTHER = "hurt", "beside", "other"
USERS = {HURT: "u", BESIDE: "u", OTHER: "v"}
PUBLIC = (Memory, Session, Subtask, History, Snapshot)
OPENING = {"Memory.open", "Memory.close"}
"""Called around all others."""
WITHOUT_DATA = {"chat", "demo", "db downgrade", "db upgrade"}
"""Commands that load a model, or change tables and not what is in them."""

Calls = dict[str, Callable[[], Any]]


def open_memory(url: str) -> Memory:
    """Open a database with all that can read it."""
    return Memory.open(
        url,
        model=ScriptedModel(["an answer about the weather"] * 500),
        retriever=HybridRetriever(HashingEmbedder(dimension=16)),
        budget=Budget(context=420, reply=16),
        policy=Policy(auto_pin=PinTask(), recall_sessions=True),
    )


def fill(url: str) -> None:
    """Store something of every kind, so that each table has rows of the session to be damaged."""
    with open_memory(url) as memory:
        for key, user in USERS.items():
            session = memory.session(key, user=user, timezone="Europe/Berlin")
            session.pin("role", f"You are {key}.")
            session.pin("language", "Answer in English.", scope="user")
            session.append("user", f"{key} wants a hotel in Lisbon", client_key="first")
            session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])
            session.append("tool", f"{key}: three hotels", tool_call_id="c1")
            session.append("assistant", f"{key} may choose the first hotel")
            for index in range(9):
                trains = ", ".join(f"train {index} to stop {stop} of {key}" for stop in range(6))
                session.append("user", f"{key} asks about {trains}")
                session.reply()
            with session.subtask("compare") as task:
                task.append("user", f"{key} compares two hotels")
                task.assemble()
                task.promote(f"{key}: the second hotel is cheaper")
            session.supersede(1, 5)
            session.append("user", f"{key} says something secret")
            session.assemble()
            session.delete_message(session.branch.head)
        memory.wait_for_index(20)


def hurt_calls(memory: Memory, url: str, folder: Path, *, is_quick: bool = False) -> Calls:
    """Return the calls on the damaged session, in their order; *is_quick* leaves out forms."""
    if is_quick:
        return {**reading_calls(memory, HURT), **writing_calls(memory, HURT, folder)}
    return {
        **reading_calls(memory, HURT),
        **async_reading_calls(memory, HURT),
        **writing_calls(memory, HURT, folder),
        **async_writing_calls(memory, HURT, folder),
        **commands(url, folder),
    }


def reading_calls(memory: Memory, key: str) -> Calls:
    """Return the calls that read one session, with values that are the same in each run."""
    user = USERS[key]

    def session() -> Any:
        return memory.find(key, user=user)

    def task() -> Any:
        found = session()
        return found.history(compared(found))

    return {
        "Session.key": lambda: session().key,
        "Session.messages": lambda: session().messages(),
        "Session.at": lambda: session().at(5).messages(),
        "Session.at moment": lambda: len(session().at(datetime.now(UTC)).messages()),
        "Snapshot.messages": lambda: session().at(4).messages(2),
        "Snapshot.pins": lambda: session().at(5).pins(),
        "Session.pins": lambda: session().pins(),
        "Session.pin_history": lambda: session().pin_history("role"),
        "Session.branches": lambda: session().branches(),
        "History.branch": lambda: task().branch.head,
        "Session.branch": lambda: session().branch.head,
        **log_calls(session),
        "Session.history": lambda: [
            session().history(one.id).messages() for one in session().branches()
        ],
        "Session.search": lambda: texts(session().search("hotel"), key),
        "Session.search everywhere": lambda: texts(
            session().search("hotel", everywhere=True, limit=500), key
        ),
        "Session.assemble": lambda: session().assemble().token_ids[:10],
        "Session.assemble query": lambda: session().assemble(query="hotel").head,
        "Session.replacements": lambda: session().replacements(),
        "Snapshot.replacements": lambda: session().at(8).replacements(),
        "Session.compaction_state": lambda: session().compaction_state().status.value,
        "Memory.find": lambda: session().info,
        "Memory.index_status": lambda: memory.index_status(user=user, key=key).num_messages,
    }


def compared(session: Any) -> Any:
    """Return the id of the subtask that `fill` made."""
    found = [one.id for one in session.branches() if one.name == "compare"]
    if not found:
        raise SessionNotFoundError("there is no subtask 'compare'")
    return found[0]


def log_calls(session: Callable[[], Any]) -> Calls:
    """Return the calls that read the log of prompts, or check what is stored."""

    def restored() -> Any:
        found = session()
        return [found.restore(record) for record in found.truncations()[:2]]

    return {
        "Session.summaries": lambda: session().summaries(),
        "Session.truncations": lambda: session().truncations(),
        "Session.restore": restored,
        "Session.assemblies": lambda: session().assemblies(),
        "Session.check": lambda: session().check(),
        "Session.check integrity": lambda: session().check(integrity=True),
        "Session.audit": lambda: [
            (len(one.problems), len(one.discrepancies)) for one in session().audit(integrity=True)
        ],
        "Session.audit_branch": lambda: session().audit_branch().problems,
        "Session.head": lambda: session().head() and None,
    }


def async_reading_calls(memory: Memory, key: str) -> Calls:
    """Return the coroutine forms of what reads a session."""
    user = USERS[key]

    def of_session(name: str, *args: Any, **options: Any) -> Callable[[], Any]:
        async def call() -> Any:
            found = await memory.afind(key, user=user)
            return await getattr(found, name)(*args, **options)

        return lambda: asyncio.run(call())

    return {
        "Memory.afind": of_session("amessages"),
        "Session.amessages": of_session("amessages", 2),
        "Session.apins": of_session("apins"),
        "Session.asearch": of_session("asearch", "hotel"),
        "Session.atruncations": of_session("atruncations"),
        "Session.acheck": of_session("acheck", integrity=True),
        "Session.aassemble": of_session("aassemble"),
        "Memory.ahealth": lambda: asyncio.run(memory.ahealth(timeout_s=20)),
        "Memory.asessions": lambda: asyncio.run(memory.asessions(user=user)),
    }


def writing_calls(memory: Memory, key: str, folder: Path) -> Calls:
    """Return the calls that change one session; it is there after them."""
    user = USERS[key]
    path = folder / f"{key}.jsonl"

    def session() -> Any:
        return memory.find(key, user=user)

    def without_subtask() -> None:
        found = session()
        found.delete_subtask(compared(found))

    def streamed() -> str:
        with session().stream("and one more") as stream:
            return "".join(stream)

    return {
        "Session.append retry": lambda: session().append(
            "user", f"{key} wants a hotel in Lisbon", client_key="first"
        ),
        "Session.append": lambda: session().append("user", "one more question"),
        "Session.append result": lambda: session().append("tool", "late", tool_call_id="c1"),
        "Session.reply": lambda: session().reply("and another").text,
        "Session.stream": streamed,
        "Session.compact": lambda: session().compact(),
        "Session.pin": lambda: session().pin("role", "You are new."),
        "Session.undo_pin": lambda: session().undo_pin("role"),
        "Session.unpin": lambda: session().unpin("role"),
        "Session.supersede": lambda: session().supersede(4, 5).new,
        "Session.unsupersede": lambda: session().unsupersede(4).new,
        **subtask_calls(session),
        "Session.delete_subtask": without_subtask,
        "Memory.export": lambda: memory.export(path, user=user, key=key).messages,
        "Memory.load": lambda: memory.load(path, user=f"copy of {key}").messages,
        "Memory.rebuild_index": lambda: memory.rebuild_index(user=user, key=key).num_messages,
        **{
            f"Session.delete_message {n}": lambda n=n: session().delete_message(n)  # type: ignore[misc]
            for n in (1, 2, 3, 14)
        },
        **line_calls(session),
        "Session.check afterwards": lambda: session().check(integrity=True),
        "Memory.export afterwards": lambda: memory.export(path, user=user, key=key).messages,
        "Session.delete_pin": lambda: session().delete_pin("role"),
        "Memory.session": lambda: memory.session(key, user=user, timezone="UTC").key,
    }


def line_calls(session: Callable[[], Any]) -> Calls:
    """Return the calls that begin lines and go from one to another."""

    def switched() -> Any:
        found = session()
        lines = [one.id for one in found.branches() if one.is_line]
        return found.switch(lines[0] if lines else 1).name

    def without_line() -> None:
        found = session()
        before = found.branch.id
        begun = found.branch(at=3)
        found.switch(before)
        found.delete_line(begun.id)

    return {
        "Session.edit": lambda: session().edit(1, "another hotel"),
        "Session.regenerate": lambda: session().regenerate().text,
        "Session.switch": switched,
        "Session.delete_line": without_line,
    }


def subtask_calls(session: Callable[[], Any]) -> Calls:
    """Return the calls of subtasks, each of one of its own."""

    def worked() -> None:
        with session().subtask("again") as task:
            task.append("user", "work")
            task.assemble()
            task.promote("done")

    def discarded() -> None:
        session().subtask("vain", inherit="summary").discard()

    def resumed() -> None:
        found = session()
        begun = found.subtask("later", inherit="pins").branch
        found.resume_subtask(begun.id).end()

    return {
        "Session.subtask": worked,
        "Subtask.promote": worked,
        "Subtask.discard": discarded,
        "Subtask.branch": lambda: session().subtask("of", inherit="all").branch.head,
        "Session.resume_subtask": resumed,
        "Subtask.end": resumed,
    }


def async_writing_calls(memory: Memory, key: str, folder: Path) -> Calls:
    """Return the coroutine forms of what changes a session."""
    user = USERS[key]
    path = folder / f"{key}-a.jsonl"

    def call(work: Callable[[Any], Any]) -> Callable[[], Any]:
        async def run() -> Any:
            return await work(await memory.afind(key, user=user))

        return lambda: asyncio.run(run())

    async def streamed(found: Any) -> list[str]:
        return [piece async for piece in await found.astream("one more")]

    async def worked(found: Any) -> None:
        async with await found.asubtask("async") as task:
            await task.aappend("user", "work")
        await found.adelete_subtask(task.branch.id)

    async def lined(found: Any) -> None:
        before = found.branch.id
        begun = await found.abranch(at=2)
        await found.aswitch(before)
        await found.adelete_line(begun.id)

    return {
        "Session.aappend": call(lambda found: found.aappend("user", "a question")),
        "Session.areply": call(lambda found: found.areply("and another")),
        "Session.astream": call(streamed),
        "Session.acompact": call(lambda found: found.acompact()),
        "Session.apin": call(lambda found: found.apin("async", "Pinned.")),
        "Session.aunpin": call(lambda found: found.aunpin("async")),
        "Session.adelete_pin": call(lambda found: found.adelete_pin("async")),
        "Session.asubtask": call(worked),
        "Session.adelete_subtask": call(worked),
        "Session.abranch": call(lined),
        "Session.aswitch": call(lined),
        "Session.adelete_line": call(lined),
        "Session.aedit": call(lambda found: found.aedit(1, "an edit")),
        "Session.aregenerate": call(lambda found: found.aregenerate()),
        "Session.adelete_message": call(lambda found: found.adelete_message(1)),
        "Memory.aexport": lambda: asyncio.run(memory.aexport(path, user=user, key=key)),
        "Memory.aload": lambda: asyncio.run(memory.aload(path, user="async copy")),
        "Memory.asession": lambda: asyncio.run(memory.asession(key, user=user)),
    }


def shared_calls(memory: Memory) -> Calls:
    """Return the calls over all sessions of a user, or all users."""
    return {
        "Memory.users": lambda: [user for user in memory.users() if user == USERS[OTHER]],
        "Memory.sessions": lambda: [
            one.key for one in memory.sessions(user=USERS[BESIDE]) if one.key == BESIDE
        ],
        "Memory.sessions other": lambda: [one.key for one in memory.sessions(user=USERS[OTHER])],
        "Memory.purge": lambda: memory.purge(timedelta(days=1)),
        "Memory.purge_log": lambda: memory.purge_log(timedelta(0)) and None,
        "Memory.health": lambda: memory.health(timeout_s=20),
        "Memory.wait_for_index": lambda: memory.wait_for_index(10),
        "Memory.wait_for_compactions": lambda: memory.wait_for_compactions(10),
        "Memory.index_status other": lambda: memory.index_status(user=USERS[OTHER]).num_pending,
    }


def final_calls(memory: Memory) -> Calls:
    """Return what takes the damaged session away, in several ways, and then everything."""

    def purged() -> list[str]:
        memory.purge(timedelta(0))
        return [one.key for one in memory.sessions(user=USERS[OTHER])]

    key, user = HURT, USERS[HURT]
    return {
        "Memory.delete": lambda: memory.delete(key, user=user),
        "Memory.adelete": lambda: asyncio.run(memory.adelete(key, user=user)),
        "Memory.purge all": purged,
        "Memory.delete_user": lambda: memory.delete_user(user),
        "Memory.aclose": lambda: asyncio.run(memory.aclose()),
    }


def commands(url: str, folder: Path) -> Calls:
    """Return the commands of the command line, on the damaged session."""
    session = [HURT, "--user", USERS[HURT]]
    user = ["--user", USERS[HURT]]
    path = str(folder / "cli.jsonl")
    lines = {
        "users": [],
        "sessions": user,
        "show": session,
        "show --json": [*session, "--json"],
        "truncations": session,
        "pins": session,
        "replacements": session,
        "check": [*session, "--integrity"],
        "head": session,
        "search": [*session[:1], "hotel", *user, "--lexical", "--wait", "1"],
        "index status": [*session, "--lexical"],
        "index rebuild": [*session, "--lexical"],
        "export": [path, *user, "--session", HURT],
        "import": [path, "--user", "cli copy"],
        "purge": ["--older-than", "1d", "--log-older-than", "1d", "--yes"],
        "db current": [],
        "health": [],
        "delete": [*session, "--message", "3", "--yes"],
    }
    return {
        f"agentmem {name}": lambda name=name, line=line: run_command(  # type: ignore[misc]
            [*name.split(), *line, "--database", url]
        )
        for name, line in lines.items()
    }


def run_command(arguments: list[str]) -> None:
    """Run one command as the command line does; what it prints is thrown away."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit, typer.Exit):
        typer.main.get_command(app)(arguments, standalone_mode=False)


def missing(names: set[str]) -> list[str]:
    """
    Return what is public and not among *names*, which are those of calls.

    Coroutine forms that are the call itself in a thread go with it.
    """
    called = {name.split()[0] for name in names if not name.startswith("agentmem")} | OPENING
    known = {id(vars_of(name)) for name in called}
    lacking = {
        f"{owner.__name__}.{name}"
        for owner in PUBLIC
        for name in dir(owner)
        if not name.startswith("_")
        and known.isdisjoint(
            id(one) for one in (getattr(owner, name), synchronous(getattr(owner, name)))
        )
    } - OPENING
    given = {name.removeprefix("agentmem ") for name in names if name.startswith("agentmem ")}
    lacking |= {f"agentmem {name}" for name in command_names() if name not in given}
    return sorted(lacking)


def synchronous(call: Any) -> Any:
    """Return the call that *call* is the coroutine form of; itself where it is none."""
    return getattr(call, "__wrapped__", call)


def vars_of(name: str) -> Any:
    """Return what a class has under the second part of *name*, inherited or not."""
    owner, _, attribute = name.partition(".")
    return getattr(next(one for one in PUBLIC if one.__name__ == owner), attribute)


def command_names() -> Iterator[str]:
    """List the commands that read or write what is stored."""
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        within = getattr(command, "commands", None)
        for full in [name] if within is None else [f"{name} {inner}" for inner in within]:
            if full not in WITHOUT_DATA:
                yield full


def texts(hits: Any, key: str) -> list[str]:
    """Return the texts of *key* among what was found, in an order of their own."""
    return sorted(one for one in (hit.stored.message.text for hit in hits) if key in one)
