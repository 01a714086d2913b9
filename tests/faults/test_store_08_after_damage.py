"""A damaged message is an entry of the chain like any once it is deleted, and exports load."""

import contextlib
import sqlite3

import pytest

from agentmem import DamagedFileError, Memory, Origin

SAID = "[message 3 is damaged and cannot be read]"
SET = {
    "parts": "parts = '{bad'",
    "role": "role = x'ff'",
    "created_at": "created_at = 'yesterday'",
    "link": "link = 'abc'",
    "sealed": "sealed = 'abc'",
    "nonce": "nonce = 7",
    "parts and link": "parts = 7, link = x'01'",
    "position": "position = 99",
    "row": None,
}
SESSIONS = [f"{name}, {place}" for name in SET for place in ("newest", "middle")]
MESSAGE = (
    "message WHERE position = {} AND branch_id = (SELECT branch.id FROM branch "
    "JOIN session ON session.id = session_id WHERE key = '{}')"
)


def edit(path, key, values, position=3):
    """Change a message behind the back of the package; without values, remove it."""
    table, _, where = MESSAGE.format(position, key).partition(" ")
    statement = f"UPDATE {table} SET {values} {where}"  # noqa: S608 - of this file
    if not values:
        statement = f"DELETE FROM {table} {where}"  # noqa: S608 - of this file
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        assert connection.total_changes == 1
        connection.commit()


def talk(path, keys):
    with Memory.open(f"sqlite:///{path}") as memory:
        for key in keys:
            session = memory.session(key)
            for index in range(3 if "newest" in key else 5):
                session.append("assistant" if index % 2 else "user", f"number {index + 1}")
        return {key: memory.find(key).head() for key in keys}


def positions(session):
    found = session.check(integrity=True)
    return {one.position if hasattr(one, "position") else one.spans[0].first for one in found}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "m.db"
    heads = talk(path, SESSIONS)
    for key in SESSIONS:
        edit(path, key, SET[key.partition(", ")[0]])
    return path, heads


@pytest.mark.slow
def test_an_export_with_a_damaged_message_loads_and_its_deletion_is_clean_there(damaged, tmp_path):
    path, _ = damaged
    there = [key for key in SESSIONS if key.partition(",")[0] not in {"position", "row"}]
    with Memory.open(f"sqlite:///{path}") as memory:
        for key in there:
            memory.export(tmp_path / f"{key}.jsonl", user="default", key=key)
    with Memory.open(f"sqlite:///{tmp_path / 'n.db'}") as memory:
        for key in there:
            assert memory.load(tmp_path / f"{key}.jsonl").messages == (3 if "newest" in key else 5)
            session = memory.find(key)
            assert (key, session.messages()[2].message.text) == (key, SAID)
            assert positions(session) == {3}
            session.delete_message(3)
            assert (key, session.check(integrity=True)) == (key, ())


def test_an_export_without_a_message_is_refused_until_its_deletion_is_noted(damaged, tmp_path):
    path, _ = damaged
    with Memory.open(f"sqlite:///{path}") as memory:
        memory.export(tmp_path / "e.jsonl", user="default", key="row, middle")
    with (
        Memory.open(f"sqlite:///{tmp_path / 'n.db'}") as memory,
        pytest.raises(DamagedFileError, match="positions 3 to 3 are missing"),
    ):
        memory.load(tmp_path / "e.jsonl")


@pytest.mark.slow
def test_check_is_clean_once_damaged_messages_are_deleted_and_the_export_loads(damaged, tmp_path):
    path, heads = damaged
    copy = tmp_path / "m.db"
    copy.write_bytes(path.read_bytes())
    with Memory.open(f"sqlite:///{copy}") as memory:
        for key in SESSIONS:
            session = memory.session(key)
            assert session.check()
            session.delete_message(3)
            session.append("user", "and now?")
            origins = [one.origin for one in session.messages()]
            assert (key, origins.index(Origin.DELETED)) == (key, 2)
            assert (key, session.check(integrity=True)) == (key, ())
            if "link" not in key and "row" not in key:
                assert (key, session.check(head=heads[key])) == (key, ())
        memory.export(tmp_path / "e.jsonl")
    with Memory.open(f"sqlite:///{tmp_path / 'n.db'}") as memory:
        for user in ("default", "another"):
            memory.load(tmp_path / "e.jsonl", user=user)
            for key in SESSIONS:
                session = memory.find(key, user=user)
                assert session.messages()[2].message.text == "[deleted]"
                assert (key, session.check(integrity=True)) == (key, ())


def test_what_stands_beside_a_lost_message_is_proved_after_its_deletion(damaged, tmp_path):
    path, _ = damaged
    copy = tmp_path / "m.db"
    copy.write_bytes(path.read_bytes())
    keys = [f"{name}, middle" for name in ("parts", "link", "row")]
    with Memory.open(f"sqlite:///{copy}") as memory:
        for key in keys:
            memory.find(key).delete_message(3)
        for key in keys:
            # The later ones first: what is forged stays so.
            for position, word in ((4, "number"), (3, "deleted"), (2, "number")):
                edit(copy, key, f"parts = replace(parts, '{word}', 'pay')", position)
                assert (key, position in positions(memory.find(key))) == (key, True)


def test_an_export_in_which_a_stand_in_says_something_else_is_refused(tmp_path):
    path = tmp_path / "m.db"
    talk(path, ["hurt"])
    edit(path, "hurt", "origin = 'damaged', parts = replace(parts, 'number', 'pay')")
    with Memory.open(f"sqlite:///{path}") as memory:
        assert positions(memory.session("hurt")) == {3}
        memory.export(tmp_path / "e.jsonl")
    with (
        Memory.open(f"sqlite:///{tmp_path / 'n.db'}") as memory,
        pytest.raises(DamagedFileError, match="message 3"),
    ):
        memory.load(tmp_path / "e.jsonl")
