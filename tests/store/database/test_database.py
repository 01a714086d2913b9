import os
import sqlite3
import threading

import pytest
from sqlalchemy.exc import DBAPIError

from agentmem.errors import (
    DamagedRowError,
    DatabaseBusyError,
    DatabaseUrlError,
    InvalidInputError,
    StoreError,
)
from agentmem.store import Store
from agentmem.store.database import database
from agentmem.store.database.error_translation import mask, translate
from agentmem.store.database.urls import parse_url
from agentmem.types import BranchId, Scope
from tests.builders import say


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "not a database URL"),
        ("agent.db", "not a database URL"),
        ("postgresql://h:port/x", "not a database URL"),
        ("mysql://h/x", "'mysql'"),
        ("postgresql+asyncpg://h/x", "'postgresql\\+asyncpg'"),
        ("sqlite+aiosqlite:///x.db", "aiosqlite"),
        ("nonsense://x", "'nonsense'"),
        ("sqlite://agent.db", "three slashes"),
        ("sqlite:///agent.db?mode=ro", "options"),
        ("sqlite:////no/such/folder/agent.db", "/no/such/folder"),
        ("sqlite:////tmp", "is a folder"),
    ],
)
def test_a_url_that_opens_nothing_is_one_clear_line(url, says):
    with pytest.raises(DatabaseUrlError, match=says) as caught:
        Store.open(url)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:hunter2@127.0.0.1:1/x",
        "postgresql://127.0.0.1:1/x?user=ann&password=hunter2",
        "postgresql://ann:hunter2@h:port/x",
        "postgresql://ann:hunter2@[::1/x",
        "mysql://ann:hunter2@h/x",
    ],
)
def test_no_message_shows_a_password(url):
    with pytest.raises(StoreError) as caught:
        Store.open(url)

    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_that_is_not_there_is_named():
    with pytest.raises(StoreError, match=r"cannot reach .*127\.0\.0\.1:1"):
        Store.open("postgresql://ann@127.0.0.1:1/x")


def test_a_database_that_the_server_does_not_have_is_named(postgres):
    with pytest.raises(StoreError, match="no_such_database"):
        Store.open(postgres.get_uri(database="no_such_database"))


def test_percent_signs_in_a_url_are_decoded_once():
    url = parse_url("postgresql://ann:p%25w%40d@h/a%20b")

    assert (url.password, url.database, url.drivername) == ("p%w@d", "a b", "postgresql+psycopg")


def test_masking_keeps_what_is_no_password():
    assert mask("postgresql://ann:a:b@c@h/x") == "postgresql://ann:***@h/x"
    assert mask("sqlite:///agent.db") == "sqlite:///agent.db"


def test_a_file_that_is_no_database_is_left_as_it_was(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be looked at as if it were one" * 20)
    before = path.read_bytes()

    with pytest.raises(DatabaseUrlError, match=r"notes\.txt"):
        Store.open(f"sqlite:///{path}")

    assert path.read_bytes() == before


def test_a_file_that_cannot_be_written_is_one_clear_error(tmp_path):
    path = tmp_path / "agent.db"
    Store.open(f"sqlite:///{path}").close()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("CREATE TABLE x (y)")
    connection.close()

    error = translate(DBAPIError.instance("x", {}, caught.value, sqlite3.Error), "sqlite:///a.db")

    assert type(error) is StoreError
    assert "permissions" in str(error)


def test_sqlite_is_durable_checked_and_forgets_what_was_deleted(tmp_path):
    with Store.open(f"sqlite:///{tmp_path / 'agent.db'}") as store:
        settings = {
            name: store.database.read(
                lambda connection, name=name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            )
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }

    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
    }


def test_a_write_waits_for_its_lock_and_then_gives_up(tmp_path, monkeypatch):
    path = tmp_path / "agent.db"
    with Store.open(f"sqlite:///{path}") as store:
        scope = Scope()
        main = store.sessions.get_or_create(scope, "k").main
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.5, lambda: other.execute("ROLLBACK")).start()
        assert store.messages.append(scope, main, [say("user", "waited")])

        other.execute("BEGIN IMMEDIATE")
        monkeypatch.setattr(database, "BUSY_TIMEOUT_S", 0.2)
        with pytest.raises(DatabaseBusyError, match="try again"):
            store.messages.append(scope, main, [say("user", "gave up")])
        assert store.sessions.branch(scope, main).head == 1
        other.close()


def test_no_error_of_a_driver_comes_out(store):
    def nonsense(connection):
        return connection.exec_driver_sql("SELECT * FROM nowhere")

    for run in (store.database.read, store.database.write):
        with pytest.raises(StoreError, match="nowhere") as caught:
            run(nonsense)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (RuntimeError("mine"), RuntimeError),
        (KeyboardInterrupt("mine"), KeyboardInterrupt),
        (InvalidInputError("mine"), InvalidInputError),
        # A fault of ours is no damage: a typed error would advise to restore a backup.
        (KeyError("mine"), KeyError),
        (DamagedRowError("pin", reason="mine"), DamagedRowError),
    ],
)
def test_what_work_raises_comes_out_and_nothing_is_stored(store, scope, main, raised, expected):
    def work(connection):
        connection.exec_driver_sql("UPDATE branch SET head = 7")
        raise raised

    with pytest.raises(expected, match="mine") as caught:
        store.database.write(work)

    assert caught.value is raised or caught.value.__cause__ is raised
    assert store.sessions.branch(scope, main).head == 0


def test_threads_share_a_store(store, scope, main):
    def write(number):
        for turn in range(20):
            store.messages.append(scope, main, [say("user", f"{number}-{turn}")])
            store.messages.read(scope, main, 1, 3)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    texts = [stored.message.text for stored in store.messages.read(scope, main)]
    assert len(texts) == len(set(texts)) == 80
    for number in range(4):
        own = [text for text in texts if text.startswith(f"{number}-")]
        assert own == [f"{number}-{turn}" for turn in range(20)]


@pytest.mark.slow
def test_a_forked_process_does_not_talk_over_its_parents_connections(shared_url, scope):
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
        store.messages.append(scope, main, [say("user", "parent")])
        child = os.fork()
        if child == 0:
            try:
                store.messages.append(scope, main, [say("user", "child")])
                os._exit(0)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)

        assert status == 0
        texts = [stored.message.text for stored in store.messages.read(scope, main)]

    assert texts == ["parent", "child"]


def test_a_restart_of_the_server_is_survived(restart_postgres, postgres_url, scope):
    with Store.open(postgres_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
        store.messages.append(scope, main, [say("user", "before")])

        restart_postgres()

        store.messages.append(scope, main, [say("user", "after")])
        assert store.sessions.branch(scope, main).head == 2


def test_a_connection_that_breaks_inside_the_work_runs_it_again(postgres_url, scope):
    with Store.open(postgres_url) as store:
        runs = []

        def work(connection):
            runs.append(connection)
            if len(runs) == 1:
                connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
            return connection.exec_driver_sql("SELECT 1").scalar()

        assert store.database.write(work) == 1
        assert len(runs) == 2
        with pytest.raises(LookupError):
            store.sessions.branch(scope, BranchId(1))


def test_a_closed_store_says_so_and_opens_nothing_again(url, scope, tmp_path):
    store = Store.open(url)
    session = store.sessions.get_or_create(scope, "trip")

    store.close()
    store.close()

    for use in (
        lambda: store.sessions.get_or_create(scope, "trip"),
        lambda: store.messages.read(scope, session.main),
        lambda: store.messages.append(scope, session.main, [say("user", "a")]),
        lambda: store.pins.set(scope, session.main, "a", "1"),
        lambda: store.prompt_log.assemblies(scope, session.id),
        lambda: store.deletion.user(scope),
        lambda: store.retention.stale(session.created_at),
        lambda: store.transfer.export(tmp_path / "x.jsonl"),
    ):
        with pytest.raises(StoreError, match="this store is closed: open it again"):
            use()
    assert store.database.engine.pool.status() == store.database.engine.pool.recreate().status()


def test_only_what_may_be_lost_in_a_power_cut_does_not_wait_for_the_disk(store):
    database = store.database
    is_sqlite = database.engine.dialect.name == "sqlite"
    question = "PRAGMA synchronous" if is_sqlite else "SHOW synchronous_commit"

    def ask(connection):
        return str(connection.exec_driver_sql(question).scalar())

    seen = [database.write(ask, durable=is_durable) for is_durable in (True, False, True)]

    assert seen == (["2", "1", "2"] if is_sqlite else ["on", "off", "on"])
