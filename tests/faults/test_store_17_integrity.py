"""Edits of a database behind its back are named, and so are those of an export."""

import contextlib
import gzip
import hashlib
import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from agentmem import Memory
from agentmem.errors import AgentMemError, DamagedFileError, InvalidInputError
from agentmem.store import Store, upgrade
from agentmem.types import Message, Role, Scope, TextPart
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401 - fixtures

OLD = Path(__file__).parents[1] / "data" / "v0_1"
TEXTS = ("Find a hotel in Lisbon.", "Hotel Lisboa, 92 EUR.", "Book it.", "Booked.", "Thanks.")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


def fill(memory, key="trip", user="ann"):
    session = memory.session(key, user=user)
    session.pin("role", "You are a travel agent.")
    for index, text in enumerate(TEXTS):
        session.append("assistant" if index % 2 else "user", text)
    return session


@pytest.fixture
def memory(path):
    with Memory.open(f"sqlite:///{path}") as opened:
        fill(opened, "other", "bob")
        fill(opened)
        yield opened


def trip(memory):
    return memory.find("trip", user="ann")


def filled(statement):
    for name, value in (("$AT", AT), ("$COPIED", COPIED), ("$MAIN", MAIN), ("$OTHER", OTHER)):
        statement = statement.replace(name, value)
    return statement


def edit(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(filled(statement))
        raw.commit()


MAIN = "(SELECT b.id FROM branch b JOIN session s ON s.id = b.session_id WHERE s.key = 'trip')"
OTHER = MAIN.replace("trip", "other")
AT = "branch_id = $MAIN AND position"
COPIED = (
    "role, origin, parts, tool_calls, tool_call_id, name, generated_by, generated_ids, "
    "created_at, stored_at, nonce, link, sealed"
)
EDITS = {
    "content": ["UPDATE message SET parts = replace(parts, '92', '920') WHERE $AT = 2"],
    "tail cut": [
        "DELETE FROM message WHERE $AT > 3",
        "UPDATE branch SET head=3 WHERE id=$MAIN",
    ],
    "middle deletion": ["DELETE FROM message WHERE $AT = 3"],
    "middle deletion, closed up": [
        "DELETE FROM message WHERE $AT = 3",
        "UPDATE message SET position = position - 1 WHERE $AT = 4",
        "UPDATE message SET position = position - 1 WHERE $AT = 5",
        "UPDATE branch SET head = 4 WHERE id = $MAIN",
    ],
    "reorder": [
        "UPDATE message SET position = 99 WHERE $AT = 1",
        "UPDATE message SET position = 1 WHERE $AT = 3",
        "UPDATE message SET position = 3 WHERE $AT = 99",
    ],
    "forged insert": [
        (
            "INSERT INTO message (branch_id, position, role, origin, parts, created_at) "
            "SELECT branch_id, 6, role, origin, parts, created_at FROM message WHERE $AT = 4"
        ),
        "UPDATE branch SET head = 6 WHERE id = $MAIN",
    ],
    "replay of another session": [
        "DELETE FROM message WHERE branch_id = $MAIN",
        (
            "INSERT INTO message (branch_id, position, $COPIED) "
            "SELECT $MAIN, position, $COPIED FROM message WHERE branch_id = $OTHER"
        ),
        ("UPDATE branch SET chain = (SELECT chain FROM branch WHERE id = $OTHER) WHERE id = $MAIN"),
    ],
    "rollback": [
        "DELETE FROM message WHERE $AT > 2",
        (
            "UPDATE branch SET head = 2, updated_at = created FROM "
            "(SELECT created_at AS created FROM message WHERE $AT = 2) WHERE id = $MAIN"
        ),
    ],
    "time": ["UPDATE message SET created_at = '2020-01-01 00:00:00.000000' WHERE $AT = 2"],
    "role": ["UPDATE message SET role = 'assistant' WHERE $AT = 1"],
    "origin": ["UPDATE message SET origin = 'promoted' WHERE $AT = 2"],
    "name": ["UPDATE message SET name = 'bob' WHERE $AT = 1"],
    "forged deletion": [
        (
            'UPDATE message SET parts = \'[{"type":"text","text":"[deleted]"}]\', '
            "origin = 'deleted', sealed = x'00' WHERE $AT = 2"
        )
    ],
    "pin": ["UPDATE pin_version SET text = 'You are a pirate.'"],
    "pin removed": ["DELETE FROM pin"],
    "owner": ["UPDATE session SET owner_id = (SELECT id FROM owner WHERE user='bob')"],
    "session key": ["UPDATE session SET key = 'trap' WHERE key = 'trip'"],
    "event removed": ["DELETE FROM event"],
    "chain removed": ["UPDATE branch SET chain = NULL", "UPDATE message SET link = NULL"],
}


def test_what_was_written_agrees_with_itself(memory):
    session = trip(memory)
    with session.subtask("compare") as task:
        task.append("user", "Which is cheaper?")
        task.pin("scope", "Only Lisbon.")
        task.promote("Hotel Lisboa.")
    session.append("user", "x", client_key="k")
    session.edit(1, "Find a hotel in Porto.")
    memory.session("two", user="ann")

    assert session.check() == ()
    assert session.check(integrity=True, head=session.head()) == ()
    assert all(not one.discrepancies for one in session.audit(integrity=True))


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_behind_the_back_is_named(memory, path, name):
    edit(path, *EDITS[name])
    user, key = {"owner": ("bob", "trip"), "session key": ("ann", "trap")}.get(
        name, ("ann", "trip")
    )

    assert memory.find(key, user=user).check(integrity=True)


@pytest.mark.parametrize("name", ["content", "middle deletion", "reorder", "forged insert", "role"])
def test_a_check_without_the_chain_names_messages_that_are_not_what_was_stored(memory, path, name):
    edit(path, *EDITS[name])
    positions = {getattr(one, "position", None) for one in trip(memory).check()}

    assert positions & {1, 2, 3, 4, 6}


@pytest.mark.parametrize("name", EDITS)
def test_an_export_of_an_edited_database_is_not_imported(memory, path, tmp_path, name):
    edit(path, *EDITS[name])
    if name == "chain removed":
        edit(path, "UPDATE branch SET chain = x'00' WHERE id = $MAIN")
    file = tmp_path / "export.jsonl"
    memory.export(file)
    with Memory.open("sqlite://") as other:
        with pytest.raises((DamagedFileError, AgentMemError)):
            other.load(file)

        assert other.sessions(user="ann") == ()


def test_an_older_copy_of_the_whole_database_is_named_by_a_head_from_outside(path):
    url = f"sqlite:///{path}"
    with Memory.open(url) as memory:
        old = fill(memory).head()
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    with Memory.open(url) as memory:
        session = trip(memory)
        session.append("assistant", "Anything else?")
        head, keyed = session.head(), session.head(key="secret")
        assert session.check(head=old) == ()  # it has gone on from there
    shutil.copy(copy, path)
    with Memory.open(url) as memory:
        session = trip(memory)

        assert session.check(integrity=True) == ()
        assert session.check(head=old) == ()
        assert "never passed the head" in session.check(head=head)[0].problem
        assert "never passed the head" in session.check(head=keyed, key="secret")[0].problem


def test_a_keyed_head_takes_its_key(memory):
    session = trip(memory)
    keyed = session.head(key="secret")

    assert session.check(head=keyed, key="secret") == ()
    assert session.check(head=keyed, key="guess")
    for head, key in ((keyed, None), (session.head(), "secret"), ("nonsense", None), (keyed, "")):
        with pytest.raises(InvalidInputError):
            session.check(head=head, key=key)


def test_a_deletion_is_an_entry_and_leaves_neither_text_nor_guessable_hash(memory, path):
    session = trip(memory)
    head = session.head()
    session.delete_message(2)
    session.delete_pin("role")

    assert session.check(integrity=True, head=head) == ()
    with contextlib.closing(sqlite3.connect(path)) as raw:
        kept = filled("SELECT nonce, sealed FROM message WHERE $AT = 2")
        nonce, sealed = raw.execute(kept).fetchone()
    assert nonce is None
    assert len(sealed) == 32
    session.delete_message(2)
    assert session.check(integrity=True, head=head) == ()
    edit(path, "UPDATE message SET parts = replace(parts, 'deleted', 'forged') WHERE $AT = 2")
    assert session.check(integrity=True)


@pytest.mark.parametrize("user", [None, "carl"])
def test_an_import_has_the_chain_of_its_export(memory, tmp_path, user):
    session = trip(memory)
    session.delete_message(2)
    session.pin("limit", "500 EUR")
    file = tmp_path / "export.jsonl"
    memory.export(file, user="ann")
    with Memory.open("sqlite://") as other:
        other.load(file, user=user)
        found = other.find("trip", user=user or "ann")

        assert found.check(integrity=True) == ()
        assert (found.head() == session.head()) == (user is None)
        found.append("assistant", "more")
        assert found.check(integrity=True) == ()


def test_an_import_names_what_was_changed_in_the_file(memory, tmp_path):
    file = tmp_path / "export.jsonl"
    memory.export(file, user="ann")
    forge(file, "92 EUR", "920 EUR")
    with Memory.open("sqlite://") as other, pytest.raises(DamagedFileError, match="message 2 "):
        other.load(file)


def forge(file, old, new):
    """Change a text of an export, and make its checksum anew."""
    lines = file.read_text().replace(old, new).splitlines(keepends=True)[:-1]
    checksum = hashlib.sha256("".join(lines).encode()).hexdigest()
    end = json.dumps({"end": {"lines": len(lines), "sha256": checksum}}, separators=(",", ":"))
    file.write_text("".join(lines) + end + "\n")


@pytest.mark.slow
def test_a_database_and_an_export_of_before_there_were_chains_are_chained(tmp_path):
    database = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(database)) as raw:
        raw.executescript(gzip.decompress((OLD / "database.sql.gz").read_bytes()).decode())
    file = tmp_path / "old.jsonl"
    file.write_bytes(gzip.decompress((OLD / "export.jsonl.gz").read_bytes()))
    upgrade(f"sqlite:///{database}")
    upgrade(f"sqlite:///{tmp_path / 'new.db'}")
    with Memory.open(f"sqlite:///{tmp_path / 'new.db'}") as memory:
        memory.load(file)
    for path in (database, tmp_path / "new.db"):
        with contextlib.closing(sqlite3.connect(path)) as raw:
            sessions = raw.execute(
                "SELECT namespace, user, key FROM session JOIN owner ON owner.id = owner_id"
            ).fetchall()
        assert sessions
        for namespace, user, key in sessions:
            with Memory.open(f"sqlite:///{path}", namespace=namespace) as memory:
                session = memory.find(key, user=user)
                assert session.check(integrity=True) == ()
                assert all(not one.discrepancies for one in session.audit(integrity=True))


@pytest.mark.slow
def test_both_databases_write_the_same_chain(request, tmp_path):
    scope = Scope(namespace="default", user="ann")
    file = tmp_path / "export.jsonl"
    hello = [Message(role=Role.USER, parts=(TextPart(text="hello"),))]
    with Store.open(request.getfixturevalue("new_postgres_url")) as store:
        info = store.sessions.get_or_create(scope, "trip")
        for messages in (hello, hello * 3):
            store.messages.append(scope, info.main, messages)
        store.pins.set(scope, info.main, "role", "x")
        store.messages.append(scope, info.main, hello, client_key="k")
        store.deletion.message(scope, info.main, 2)
        head = store.heads.head(scope, info.id)
        assert store.heads.verify(scope, info.id, head=head) == ()
        store.transfer.export(file, scope=scope)
    with Store.open("sqlite://") as store:
        store.transfer.load(file)
        info = store.sessions.get(scope, "trip")
        store.messages.append(scope, info.main, hello)

        assert store.heads.verify(scope, info.id, head=head) == ()
