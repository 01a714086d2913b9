"""Damaged users, client keys, events, pins and moments are typed errors, and can be cleared."""

import contextlib
import sqlite3
from datetime import timedelta

import psycopg
import pytest

from agentmem import Budget, DamagedRowError, Memory, Origin, SessionNotFoundError, ToolCall
from agentmem.retrieval import HybridRetriever
from agentmem.testing import WordCounter
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401 - fixtures


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    path = tmp_path_factory.mktemp("clean") / "m.db"
    with Memory.open(f"sqlite:///{path}") as memory:
        for key, user in (("hurt", "u"), ("beside", "u"), ("other", "v")):
            fill(memory.session(key, user=user))
        memory.find("hurt", user="u").subtask("work")
    return path


def change_of(table, change, where):
    return f"UPDATE {table} SET {change} WHERE {where}"  # noqa: S608 - of this file


def fill(session):
    session.pin("role", f"You are {session.key}.")
    session.pin("role", f"You are still {session.key}.")
    session.append("user", "a question", client_key="first")
    session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])
    return session


@pytest.fixture
def damaged(clean, tmp_path):
    """Copy the database, damage a value in it, and open it."""

    @contextlib.contextmanager
    def open_damaged(*statements):
        path = tmp_path / "m.db"
        path.write_bytes(clean.read_bytes())
        with contextlib.closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                assert connection.execute(statement).rowcount
            connection.commit()
        with Memory.open(f"sqlite:///{path}", retriever=HybridRetriever()) as memory:
            yield memory

    return open_damaged


@pytest.mark.parametrize("value", ["x'fffe'", "7", "CAST(x'C3286869' AS TEXT)"])
def test_a_user_whose_name_cannot_be_read_is_not_listed_and_named_by_an_export(
    damaged, tmp_path, value
):
    with damaged(change_of("owner", f"user = {value}", "user = 'u'")) as memory:
        assert "v" in memory.users()
        memory.export(tmp_path / "v.jsonl", user="v")
        if value != "7":  # a column of texts makes one of a number
            assert memory.users() == ("v",)
            with pytest.raises(DamagedRowError, match="'user'"):
                memory.export(tmp_path / "u.jsonl", user="u")


@pytest.mark.parametrize("change", ["first = 2.5", "first = 9", "last = -7", "last = 'abc'"])
def test_a_retry_under_a_damaged_client_key_is_refused_and_stores_nothing(damaged, change):
    with damaged(change_of("append", change, "branch_id = 1")) as memory:
        session = memory.find("hurt", user="u")
        with pytest.raises(DamagedRowError, match=r"'append' \(session 'hurt', branch 'main'\)"):
            session.append("user", "a question", client_key="first")
        assert len(session.messages()) == 2


@pytest.mark.parametrize(
    "change", ["link = 1099511627776", "link = 'abc'", "content = 7", "at = 'abc'", "kind = x'ff'"]
)
def test_check_names_an_event_that_cannot_be_read(damaged, change):
    with damaged(change_of("event", change, "id = 1")) as memory:
        found = memory.find("hurt", user="u").check(integrity=True)
        assert any("event 1" in one.problem for one in found)
        assert memory.find("beside", user="u").check(integrity=True) == ()


@pytest.mark.parametrize(
    "change", ["text = x'ff'", "created_at = 5", "nonce = 'abc'", "author = x'ff'"]
)
def test_check_is_clean_once_a_damaged_pin_was_deleted(damaged, change):
    with damaged(change_of("pin_version", change, "pin_id = 1 AND version = 2")) as memory:
        session = memory.find("hurt", user="u")
        assert session.check(integrity=True)
        session.delete_pin("role")
        assert session.check(integrity=True) == ()


def test_a_damaged_open_call_is_named_by_what_would_answer_it(damaged):
    with damaged("UPDATE tool_call SET call_id = x'ff' WHERE branch_id = 1") as memory:
        with pytest.raises(DamagedRowError, match=r"'tool_call' \(session 'hurt'"):
            memory.find("hurt", user="u").append("user", "and?")
        memory.find("beside", user="u").append("user", "and?")


@pytest.mark.parametrize(
    "change", ["parent_id = -7", "parent_id = 987654", "parent_id = 2", "id = -7"]
)
def test_a_subtask_whose_row_is_damaged_is_named_and_harms_no_other_session(damaged, change):
    with damaged(change_of("branch", change, "name = 'work'")) as memory:
        hurt = memory.find("hurt", user="u")
        with pytest.raises((DamagedRowError, SessionNotFoundError)):
            hurt.delete_subtask(next(one.id for one in hurt.branches() if one.name == "work"))
        found = memory.find("beside", user="u").search("question", everywhere=True)
        assert [hit.times for hit in found] == [2]
        memory.delete("hurt", user="u")


def test_a_session_without_a_branch_is_named_and_can_be_deleted(damaged):
    with damaged("UPDATE branch SET session_id = 987654 WHERE session_id = 1") as memory:
        with pytest.raises(DamagedRowError, match="'hurt'"):
            memory.session("hurt", user="u")
        memory.delete("hurt", user="u")
        assert memory.session("hurt", user="u").messages() == ()


def test_a_session_without_a_branch_is_not_exported_without_its_messages(damaged, tmp_path):
    with damaged("UPDATE branch SET session_id = 987654 WHERE session_id = 1") as memory:
        with pytest.raises(DamagedRowError, match="'hurt'"):
            memory.export(tmp_path / "all.jsonl", user="u")
        assert not (tmp_path / "all.jsonl").exists()
        assert memory.export(tmp_path / "one.jsonl", key="beside", user="u").messages == 2


@pytest.mark.parametrize(
    ("change", "num_purged", "num_left"),
    [
        (change_of("assembly", "layout = 7", "branch_id = 1"), 2, 1),
        (change_of("assembly", "pins = x'ff'", "id = 2"), 4, 1),
        (change_of("assembly", "head = 'abc'", "id = 3"), 3, 2),
        (change_of("truncation", "ranges = 'abc'", "assembly_id = 2"), 4, 1),
    ],
)
def test_a_purge_of_accounts_takes_those_that_cannot_be_read_and_leaves_no_others(
    tmp_path, change, num_purged, num_left
):
    path = tmp_path / "m.db"
    options = {"counter": WordCounter(), "budget": Budget(context=30, reply=8)}
    with Memory.open(f"sqlite:///{path}", **options) as memory:
        for key in ("hurt", "other"):
            session = memory.session(key)
            for index in range(3):
                session.append("user", f"the number {index} is what this one is about")
                session.assemble()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute(change).rowcount
        connection.commit()
    with Memory.open(f"sqlite:///{path}", **options) as memory:
        hurt = memory.find("hurt")
        assert hurt.check()
        assert memory.purge_log(timedelta(0)) == num_purged
        assert len(memory.find("other").assemblies()) == 1
        if num_left == 1 and num_purged == 4:
            assert hurt.check() == ()
            assert len(hurt.assemblies()) == 1
        hurt.assemble()


@pytest.mark.parametrize("value", ["'abc'", "7"])
def test_a_purge_of_the_log_passes_over_a_branch_whose_chain_cannot_be_read(tmp_path, value):
    path = tmp_path / "m.db"
    options = {"counter": WordCounter(), "budget": Budget(context=30, reply=8)}
    with Memory.open(f"sqlite:///{path}", **options) as memory:
        for key in ("hurt", "other"):
            session = memory.session(key)
            for index in range(3):
                session.append("user", f"the number {index} is what this one is about")
                session.assemble()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute(change_of("branch", f"chain = {value}", "id = 1"))
        connection.commit()
    with Memory.open(f"sqlite:///{path}", **options) as memory:
        assert memory.purge_log(timedelta(0)) == 2
        with pytest.raises(DamagedRowError, match=r"'chain'.*'hurt'"):
            memory.find("hurt").assemblies()
        assert len(memory.find("other").assemblies()) == 1


def test_a_moment_that_no_datetime_is_takes_only_its_own_row_with_it(
    new_postgres_url,  # noqa: F811 - a fixture
):
    with Memory.open(new_postgres_url) as memory:
        for key in ("hurt", "lost", "beside"):
            fill(memory.session(key))
    with psycopg.connect(new_postgres_url) as connection:
        connection.execute("UPDATE session SET created_at = 'infinity' WHERE id = 1")
        connection.execute("UPDATE message SET created_at = '-infinity' WHERE branch_id = 2")
        connection.execute("UPDATE message SET created_at = '4000-01-01 BC' WHERE branch_id = 3")
    with Memory.open(new_postgres_url) as memory:
        assert {one.key for one in memory.sessions()} == {"lost", "beside"}
        assert {one.origin for one in memory.find("lost").messages()} == {Origin.DAMAGED}
        assert {one.origin for one in memory.find("beside").messages()} == {Origin.DAMAGED}
        with pytest.raises(DamagedRowError, match="'created_at'"):
            memory.find("hurt")
        memory.delete("hurt")
