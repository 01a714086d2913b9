"""A health call answers promptly, whatever hangs, and says what is wrong as a value."""

import asyncio
import json
import socket
import sqlite3
import threading
import time

import psycopg
import pytest

from agentmem import Health
from agentmem.cli.app import app
from agentmem.config import DatabaseConfig
from agentmem.errors import DatabaseBusyError, SchemaVersionError, StoreError
from agentmem.memory import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.store import downgrade, head
from agentmem.testing import HashingEmbedder, ScriptedModel
from tests.inference.tiny import ask, random_ids, tiny_model

# Fixtures of the store's tests: an empty database of each kind.
from tests.store.conftest import new_postgres_url, new_url, postgres  # noqa: F401
from tests.store.processes import finish, start

SOON_S = 3.0


@pytest.fixture
def prompt_health():
    def call(memory, timeout_s=0.3):
        started = time.monotonic()
        found = memory.health(timeout_s=timeout_s)
        assert time.monotonic() - started < timeout_s + SOON_S
        assert isinstance(found, Health)
        return found

    return call


def test_a_database_that_works_is_reachable_writable_and_of_this_revision(new_url):  # noqa: F811
    config = DatabaseConfig(pool_size=2, max_overflow=1)
    with Memory.open(new_url, database=config) as memory:
        found = memory.health()
        same = asyncio.run(memory.ahealth())

    database = found.database
    assert (found.is_ok, database.error, database.is_writable) == (True, None, True)
    assert (database.revision, database.expected, database.pool_size) == (head(), head(), 2)
    assert (found.index, found.model, found.compaction.num_waiting) == (None, None, 0)
    assert 0 <= database.seconds <= found.seconds < SOON_S
    assert same.is_ok


def test_it_answers_while_the_database_hangs_and_recovers(new_postgres_url, prompt_health):  # noqa: F811
    config = DatabaseConfig(pool_size=2, max_overflow=0)
    with (
        Memory.open(new_postgres_url, database=config) as memory,
        psycopg.connect(new_postgres_url) as other,
    ):
        other.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
        before = threading.active_count()
        for _ in range(4):
            found = prompt_health(memory)
            assert not found.is_ok
            assert isinstance(found.database.error, DatabaseBusyError)
            assert not found.database.is_reachable
        assert found.database.pool_checked_out == 1
        assert threading.active_count() <= before + 1
        assert not asyncio.run(memory.ahealth(timeout_s=0.1)).is_ok
        other.rollback()

        assert memory.health(timeout_s=20).is_ok


def test_connections_that_are_all_in_use_are_seen(new_postgres_url, prompt_health):  # noqa: F811
    config = DatabaseConfig(pool_size=1, max_overflow=0)
    with Memory.open(new_postgres_url, database=config) as memory:
        memory.session("trip")
        kept = memory._store.database.engine.connect()
        found = prompt_health(memory)
        kept.close()

    assert isinstance(found.database.error, DatabaseBusyError)
    assert (found.database.pool_size, found.database.pool_checked_out) == (1, 1)


def test_a_file_that_another_process_writes_is_reachable_and_takes_no_write(
    tmp_path, prompt_health
):
    path = tmp_path / "m.db"
    with Memory.open(f"sqlite:///{path}") as memory:
        memory.session("trip")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        found = prompt_health(memory)
        other.execute("ROLLBACK")
        other.close()
        again = memory.health(timeout_s=20)

    assert (found.is_ok, found.database.is_reachable, found.database.is_writable) == (
        False,
        True,
        False,
    )
    assert isinstance(found.database.error, DatabaseBusyError)
    assert again.is_ok


def test_files_that_cannot_be_used_are_typed_errors_in_the_value(tmp_path):
    path = tmp_path / "m.db"
    with Memory.open(f"sqlite:///{path}") as memory:
        memory.session("trip")
        path.rename(tmp_path / "elsewhere.db")
        gone = memory.health().database
    assert (gone.is_writable, type(gone.error)) == (False, StoreError)

    with Memory.open(f"sqlite:///{tmp_path / 'elsewhere.db'}", read_only=True) as memory:
        found = memory.health()
    assert (found.is_ok, found.database.is_writable) == (True, None)

    with Memory.open("sqlite://") as memory:
        assert memory.health().is_ok


def test_tables_of_another_revision_are_named(new_url, monkeypatch):  # noqa: F811
    monkeypatch.setattr("agentmem.store.database.compatibility._LOOK_AGAIN_S", 0.0)
    with Memory.open(new_url) as memory:
        downgrade(new_url, "0011")
        database = memory.health().database

    assert (database.is_reachable, database.is_compatible, database.revision) == (
        True,
        False,
        "0011",
    )
    assert isinstance(database.error, SchemaVersionError)


def test_after_close_it_says_closed(tmp_path, prompt_health):
    retriever = HybridRetriever(HashingEmbedder())
    memory = Memory.open(
        f"sqlite:///{tmp_path / 'm.db'}", model=ScriptedModel(), retriever=retriever
    )
    memory.session("trip").append("user", "Hello.")
    assert memory.wait_for_index(10)
    assert (memory.health().index.is_idle, memory.health().index.lag_s) == (True, 0.0)
    memory.close()

    found = prompt_health(memory)

    assert (found.is_ok, found.database.is_closed, found.index.is_closed) == (False, True, True)
    assert isinstance(found.database.error, StoreError)
    assert found.model.name == ScriptedModel().name


class FailingEmbedder(HashingEmbedder):
    def embed_passages(self, _texts):
        raise RuntimeError("no embedder today")


def test_what_fails_in_the_background_is_shown_and_no_reason_to_stop(tmp_path):
    def fail(_is_cancelled):
        raise RuntimeError("no summary today")

    retriever = HybridRetriever(FailingEmbedder())
    with Memory.open(f"sqlite:///{tmp_path / 'm.db'}", retriever=retriever) as memory:
        memory.session("trip").append("user", "Hello.")
        memory.wait_for_index(5)
        memory._background.ask("key", fail)
        memory.wait_for_compactions(5)
        found = memory.health()

    assert found.is_ok
    assert not found.index.is_idle
    assert "no embedder today" in found.index.last_error
    assert found.index.lag_s > 0
    assert (found.compaction.num_failed, found.compaction.last_error) == (
        1,
        "RuntimeError: no summary today",
    )


@pytest.mark.slow
def test_a_model_is_asked_during_a_long_step_and_after_close(prompt_health):
    with tiny_model() as model, Memory.open("sqlite://", model=model) as memory:
        engine, is_over, is_in_step = model._engine, threading.Event(), threading.Event()
        step = engine._batcher.step

        def long_step(now):
            is_in_step.set()
            is_over.wait(30)
            return step(now)

        engine._batcher.step = long_step
        thread = threading.Thread(target=model.generate, args=(ask(random_ids(20), 3),))
        thread.start()
        assert is_in_step.wait(30)
        during = prompt_health(memory)
        is_over.set()
        thread.join()
        after = prompt_health(memory).model
        model.close()
        closed = prompt_health(memory)

    assert during.is_ok
    assert (during.model.num_running + during.model.num_waiting, during.model.kv_in_use) == (1, 0)
    assert (after.num_running, after.num_waiting, after.is_closed) == (0, 0, False)
    assert after.kv_free + after.kv_cached + after.kv_in_use == after.kv_total > 0
    assert (closed.is_ok, closed.model.is_closed) == (False, True)


FORK = """
import json, os, sys
from agentmem import Memory
from tests.inference.tiny import tiny_model
model = tiny_model()
with Memory.open(sys.argv[1], model=model) as memory:
    memory.health()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            found = memory.health()
            said = [found.database.is_writable, found.is_ok, type(found.model.error).__name__]
            os.write(writer, json.dumps(said).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    print(memory.health().is_ok, os.read(reader, 999).decode())
"""


@pytest.mark.slow
def test_in_a_fork_the_database_works_and_the_model_is_its_parents(tmp_path):
    said = finish(start(FORK, f"sqlite:///{tmp_path / 'm.db'}"))

    assert said.strip() == 'True [true, false, "InferenceError"]'


def test_the_command_prints_it_and_exits_for_probes(tmp_path, capsys):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    Memory.open(url).close()
    silent = socket.create_server(("127.0.0.1", 0))
    port = silent.getsockname()[1]
    bad = f"postgresql://u:s3cret@127.0.0.1:{port}/x"

    assert run(capsys, "health", "-d", url)[0] == 0
    for one in (bad, f"sqlite:///{tmp_path / 'none.db'}"):
        started = time.monotonic()
        code, found = run(capsys, "health", "-d", one, "--timeout", "0.3")
        assert time.monotonic() - started < SOON_S
        assert (code, found["is_ok"], bool(found["database"]["error"])) == (1, False, True)
        assert "s3cret" not in json.dumps(found)
    assert not (tmp_path / "none.db").exists()
    silent.close()


def run(capsys, *arguments):
    code = app([*arguments, "--json"], standalone_mode=False) or 0
    return code, json.loads(capsys.readouterr().out)
