"""A pin says what was pinned, until it is changed or deleted by whoever may."""

import json
from pathlib import Path

import pytest
from sqlalchemy import inspect, literal_column, select, table
from typer.testing import CliRunner

from agentmem import Memory, Policy, ToolCall
from agentmem.cli.app import app
from agentmem.context import PinTask
from agentmem.errors import InvalidInputError, PinNotFoundError, SessionNotFoundError
from agentmem.store import downgrade, upgrade
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import PinScope
from tests.store.conftest import (  # noqa: F401 - fixtures
    new_postgres_url,
    new_url,
    postgres,
    postgres_url,
    url,
)
from tests.store.invariants import check

NEEDLE = "Zanzibar-7-Krokodil"
POLICY = Policy(auto_pin=PinTask())


@pytest.fixture
def memory(url):  # noqa: F811 - a fixture
    with Memory.open(url, counter=WordCounter(), policy=POLICY) as opened:
        yield opened
        check(opened._store)


@pytest.fixture
def session(memory):
    return memory.session("s", user="u")


def system(conversation):
    """What the prompt's system message says, line by line."""
    first = conversation.assemble().messages[0]
    return first.text.split("\n\n") if first.role == "system" else []


def residue(memory):
    """Name each table and each file in which the secret is still found."""
    database = memory._store.database

    def look(connection):
        found = []
        for name in inspect(connection).get_table_names():
            rows = connection.execute(select(literal_column("*")).select_from(table(name)))
            if any(
                NEEDLE in str(cell) or NEEDLE.encode() in bytes_of(cell) for r in rows for cell in r
            ):
                found.append(name)
        return found

    tables = database.read(look)
    path = database.engine.url.database or ""
    is_file = database.engine.dialect.name == "sqlite" and path
    files = [one for one in Path(path).parent.iterdir() if one.is_file()] if is_file else []
    return tables + [file.name for file in files if NEEDLE.encode() in file.read_bytes()]


def bytes_of(cell):
    return bytes(cell) if isinstance(cell, bytes | memoryview) else b""


@pytest.mark.parametrize("scope", [None, *PinScope])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_pin_that_was_set_is_shown_in_place_of_an_automatic_one(session, scope, is_first):
    if is_first:
        session.pin("task", "buy bread", scope=scope)
    session.append("user", "buy milk")
    if not is_first:
        session.pin("task", "buy bread", scope=scope)

    assert system(session) == ["buy bread"]
    assert [pin.text for pin in session.pins()] == ["buy bread"]


@pytest.mark.parametrize("scope", [None, *PinScope])
@pytest.mark.parametrize("inherit", ["all", "pins", "summary"])
def test_a_pin_that_was_set_is_shown_in_subtasks_too(session, scope, inherit):
    session.append("user", "buy milk")
    session.append("assistant", "yes")
    session.pin("task", "buy bread", scope=scope)
    task = session.subtask("t", inherit=inherit)
    task.append("user", "compare shops")

    assert system(task) == ["buy bread"]

    task.pin("task", "compare bakers")

    assert system(task) == ["compare bakers"]
    assert system(session) == ["buy bread"]


def test_without_one_that_was_set_each_conversation_pins_its_own_task(session):
    session.append("user", "buy milk")
    task = session.subtask("t")
    assert system(task) == ["buy milk"]
    task.append("user", "compare shops")

    assert system(task) == ["compare shops"]
    assert system(session) == ["buy milk"]


@pytest.mark.parametrize("scope", [None, *PinScope])
def test_a_pin_is_removed_without_knowing_its_scope(session, scope):
    if scope is not None:
        session.pin("task", "buy bread", scope=scope)
    session.append("user", "buy milk")

    session.unpin("task")
    if scope == PinScope.USER:
        assert system(session) == ["buy bread"]
        session.unpin("task", scope="user")

    assert system(session) == []
    assert [pin.text for pin in session.pin_history("task", scope="branch")][-1] == ""
    with pytest.raises(PinNotFoundError, match="other"):
        session.unpin("other")


def test_a_removed_task_comes_back_by_undo(session):
    session.append("user", "buy milk")
    session.unpin("task")

    session.undo_pin("task")

    assert system(session) == ["buy milk"]
    session.append("assistant", "noted")
    session.append("user", "and now?")
    session.delete_message(1)
    assert system(session) == []


@pytest.mark.parametrize("how", ["unpinned", "changed", "set", "deleted"])
def test_a_repeated_append_pins_nothing_again(session, how):
    session.append("user", "buy milk", client_key="k")
    match how:
        case "unpinned":
            session.unpin("task")
        case "changed":
            session.pin("task", "buy bread", scope="branch")
        case "set":
            session.pin("task", "buy bread")
        case "deleted":
            session.delete_pin("task")
    before, versions = session.pins(), session.pin_history("task", scope="branch")

    again = session.append("user", "buy milk", client_key="k")

    assert again.position == 1
    assert session.branch.head == 1
    assert session.pins() == before
    assert session.pin_history("task", scope="branch") == versions


def test_a_repeated_append_pins_what_a_crash_kept_from_being_pinned(url):  # noqa: F811
    if url == "sqlite://":
        return  # nothing outlives this one
    with Memory.open(url, counter=WordCounter()) as memory:
        memory.session("s").append("user", "buy milk", client_key="k")
    with Memory.open(url, counter=WordCounter(), policy=POLICY) as memory:
        session = memory.session("s")
        session.append("user", "buy milk", client_key="k")

        assert system(session) == ["buy milk"]


@pytest.mark.parametrize("size", [1, 3000])
@pytest.mark.parametrize("where", ["session", "subtask"])
def test_a_deleted_first_message_takes_its_pin_with_it(session, memory, tmp_path, size, where):
    line = session
    if where == "subtask":
        session.append("user", "hello")
        line = session.subtask("t")
    line.append("user", f"{NEEDLE} must go " * size)
    line.append("assistant", "yes")
    line.unpin("task")
    line.undo_pin("task")
    assert NEEDLE in system(line)[-1]

    line.delete_message(line.branch.head - 1)

    assert NEEDLE not in line.assemble().text
    assert residue(memory) == []
    memory.export(tmp_path / "e.jsonl")
    assert NEEDLE not in (tmp_path / "e.jsonl").read_text()
    assert line.check() == ()


def test_a_pin_that_was_set_stays_when_the_first_message_is_deleted(session, memory):
    session.append("user", f"buy {NEEDLE}")
    session.pin("task", "buy bread", scope="branch")

    session.delete_message(1)
    session.append("user", "and now?")

    assert system(session) == ["buy bread"]
    assert residue(memory) == []


def test_a_pin_made_of_any_message_goes_with_that_one(url):  # noqa: F811
    class LastWish:
        def pin(self, stored, *, is_first):  # noqa: ARG002 - as the protocol has it
            return ("wish", stored.message.text) if stored.message.role == "user" else None

    with Memory.open(url, counter=WordCounter(), policy=Policy(auto_pin=LastWish())) as memory:
        session = memory.session("s")
        session.append("user", f"one {NEEDLE}")
        session.append("user", "two")
        session.append("user", f"three {NEEDLE}")
        session.delete_message(1)
        assert system(session) == [f"three {NEEDLE}"]
        session.delete_message(3)

        assert system(session) == []
        assert residue(memory) == []
        assert [pin.text for pin in session.pin_history("wish")] == ["", "two", ""]


@pytest.mark.parametrize("scope", [None, *PinScope])
def test_a_pin_can_be_deleted_with_all_its_versions(session, memory, scope):
    session.append("assistant", "welcome")
    session.pin("a", f"{NEEDLE} one", scope=scope)
    session.pin("a", "two", scope=scope)
    session.pin("b", "stays")
    session.assemble()

    session.delete_pin("a")

    assert residue(memory) == []
    assert system(session) == ["stays"]
    with pytest.raises(PinNotFoundError):
        session.pin_history("a")
    with pytest.raises(PinNotFoundError):
        session.delete_pin("a")


def test_an_automatic_pin_can_be_deleted_and_its_message_stays(session):
    session.append("user", "buy milk")

    session.delete_pin("task")

    assert system(session) == []
    assert session.messages()[0].message.text == "buy milk"
    session.pin("task", "buy bread")
    assert system(session) == ["buy bread"]


def test_a_subtasks_pin_can_be_deleted_after_its_end(session, memory):
    session.append("assistant", "welcome")
    session.pin("a", "the session's")
    with session.subtask("t") as task:
        task.pin("a", NEEDLE)

    session.resume_subtask(task.branch.id).delete_pin("a")

    assert residue(memory) == []
    assert system(session) == ["the session's"]


def test_a_message_of_a_subtask_can_be_deleted(session, memory):
    session.append("user", f"first {NEEDLE}")
    session.append("assistant", "ok")
    with session.subtask("t") as task:
        task.append("user", f"second {NEEDLE}")
        task.assemble()
        task.delete_message(3)
    task.delete_message(1)

    assert residue(memory) == []
    assert NEEDLE not in session.assemble().text
    with pytest.raises(SessionNotFoundError):
        task.delete_message(9)


def test_a_subtask_goes_with_all_below_it(session, memory):
    session.append("user", "hello")
    task = session.subtask("t")
    task.append("user", NEEDLE)
    inner = task.subtask("u")
    inner.append("assistant", NEEDLE, tool_calls=[ToolCall(id="c", name=NEEDLE, arguments=NEEDLE)])
    inner.pin("p", NEEDLE)
    inner.assemble()
    task.promote("harmless")
    task.end()

    session.delete_subtask(task.branch.id)

    assert residue(memory) == []
    assert [branch.name for branch in session.branches()] == ["main"]
    assert session.messages()[-1].message.text == "harmless"
    assert session.check() == ()


def test_only_a_subtask_of_the_session_can_be_deleted_as_one(session, memory):
    other = memory.session("other", user="u")
    other.append("user", "hello")
    theirs = other.subtask("t")
    for branch_id in (session.branch.id, theirs.branch.id, 99999):
        with pytest.raises(SessionNotFoundError):
            session.delete_subtask(branch_id)


async def deleted_by_coroutines(session):
    session.append("user", "buy milk")
    session.pin("p", "x")
    task = await session.asubtask("t")
    await session.adelete_pin("p")
    await session.adelete_message(1)
    await session.adelete_subtask(task.branch.id)
    return session.pins(), session.branches()


def test_deletions_have_coroutine_forms(session):
    import asyncio  # noqa: PLC0415 - one test of it

    pins, branches = asyncio.run(deleted_by_coroutines(session))

    assert pins == ()
    assert len(branches) == 1


def test_deleting_a_pin_drops_the_keys_and_values_of_its_user():
    class Model(ScriptedModel):
        forgotten = 0

        def forget(self, *, cache_salt):
            self.forgotten += 1
            super().forget(cache_salt=cache_salt)

    model = Model()
    with Memory.open("sqlite://", model=model) as memory:
        session = memory.session("s")
        session.pin("a", "x")
        session.delete_pin("a")
        session.delete_subtask(session.subtask("t").branch.id)

    assert model.forgotten == 2


def test_an_export_brings_automatic_pins_along(session, memory, tmp_path):
    session.append("user", f"buy {NEEDLE}")
    memory.export(tmp_path / "e.jsonl", user="u")
    memory.load(tmp_path / "e.jsonl", user="v")
    memory.delete("s", user="u")
    copy = memory.session("s", user="v")
    assert system(copy) == [f"buy {NEEDLE}"]
    (tmp_path / "e.jsonl").unlink()

    copy.delete_message(1)

    assert residue(memory) == []


def test_an_export_of_before_still_loads(session, memory, tmp_path):
    import hashlib  # noqa: PLC0415 - one test of it

    session.append("user", "buy milk")
    path = tmp_path / "e.jsonl"
    memory.export(path, user="u")
    lines = [json.loads(line) for line in path.read_text().splitlines()][:-1]
    lines = [line for line in lines if not {"event", "user_event"} & line.keys()]
    for line in lines:
        for columns in line.values():
            for name in (
                "made_from",
                "after_message",
                "chain",
                "log_chain",
                "link",
                "nonce",
                "sealed",
            ):
                columns.pop(name, None)
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    end = {"end": {"lines": len(lines), "sha256": hashlib.sha256(data).hexdigest()}}
    path.write_bytes(data + json.dumps(end).encode() + b"\n")

    memory.load(path, user="v")

    assert system(memory.session("s", user="v")) == ["buy milk"]


def test_a_database_of_before_learns_which_pins_were_automatic(new_url):  # noqa: F811
    long = f"{NEEDLE} " * 1000
    with Memory.open(new_url, counter=WordCounter(), policy=POLICY) as memory:
        for key, text in (("short", f"buy {NEEDLE}"), ("long", long)):
            memory.session(key).append("user", text)
        memory.session("short").pin("other", "stays", scope="branch")
    downgrade(new_url, "0003")
    upgrade(new_url)
    with Memory.open(new_url, counter=WordCounter(), policy=POLICY) as memory:
        for key in ("short", "long"):
            session = memory.session(key)
            assert NEEDLE in system(session)[0]
            session.pin("task", "buy bread")
            assert "buy bread" in system(session)
            session.delete_message(1)

        assert residue(memory) == []
        assert [pin.key for pin in memory.session("short").pins()] == ["task", "other"]


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--message", "1"], (2, 1, 2)),
        (["--pin", "p"], (2, 0, 2)),
        (["--subtask", "2"], (2, 1, 1)),
        ([], None),
    ],
)
def test_the_command_line_deletes_parts(tmp_path, options, left):
    path = f"sqlite:///{tmp_path / 'a.db'}"
    with Memory.open(path, counter=WordCounter()) as memory:
        session = memory.session("s")
        session.append("user", NEEDLE)
        session.append("assistant", "ok")
        session.pin("p", "x")
        session.subtask("t")

    done = CliRunner().invoke(app, ["delete", "s", "-d", path, "--yes", *options])

    assert (done.exit_code, "is deleted" in done.stdout) == (0, True)
    with Memory.open(path, counter=WordCounter()) as memory:
        if left is None:
            assert memory.sessions() == ()
        else:
            session = memory.find("s")
            assert (session.branch.head, len(session.pins()), len(session.branches())) == left
            assert (NEEDLE in session.messages()[0].message.text) == (options[0] != "--message")


def test_the_command_line_deletes_one_part_at_a_time(tmp_path):
    path = f"sqlite:///{tmp_path / 'a.db'}"
    options = ["--yes", "--message", "1", "--pin", "p"]

    done = CliRunner().invoke(app, ["delete", "s", "-d", path, *options])

    assert isinstance(done.exception, InvalidInputError)
