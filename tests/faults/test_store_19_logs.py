"""What an operator is told: events with fields, and never a text or a password."""

import json
import logging
import re
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from agentmem.config import Budget, DatabaseConfig
from agentmem.errors import AdmissionError, DatabaseBusyError, QueueFullError, StoreError
from agentmem.machine.logs import EVENTS
from agentmem.memory import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.store import downgrade, upgrade
from agentmem.testing import HashingEmbedder, ScriptedModel
from tests.inference.tiny import ask, random_ids, tiny_model

# Fixtures of the store's tests: an empty database on a server.
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401

SECRET = "Zanzibar-7-Krokodil"  # noqa: S105 - a text to look for
USUAL = set(vars(logging.makeLogRecord({}))) | {"message", "asctime", "event"}


@pytest.fixture
def events(caplog):
    """Return the fields of each record of an event, and check all that was logged so far."""
    caplog.set_level(logging.DEBUG, logger="agentmem")

    def of(name):
        found = []
        for record in caplog.records:
            event = getattr(record, "event", None)
            if not record.name.startswith("agentmem") or event is None:
                continue
            fields = {key: value for key, value in vars(record).items() if key not in USUAL}
            assert set(fields) == set(EVENTS[event])
            assert SECRET not in json.dumps(fields) + record.getMessage()
            if event == name:
                found.append(fields)
        return found

    return of


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.db"


def test_the_page_on_operations_lists_the_events_and_their_fields():
    text = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()

    rows = re.findall(
        r"^\| `(\w+)` \| (?:info|warning|error)[^|]* \| [^|]+ \| (.*) \|$", text, re.MULTILINE
    )

    assert {name: tuple(re.findall(r"`(\w+)`", fields)) for name, fields in rows} == EVENTS


def test_each_line_that_is_logged_is_an_event():
    folder = Path(__file__).parents[2] / "agentmem"
    plain = re.compile(r"_log\.(info|warning|error|exception|critical)\(")

    assert [path.name for path in folder.rglob("*.py") if plain.search(path.read_text())] == []


def test_nothing_is_printed_where_logging_is_not_configured(path, capfd):
    Memory.open(f"sqlite:///{path}").close()

    handlers = [type(one) for one in logging.getLogger("agentmem").handlers]
    assert logging.NullHandler in handlers
    assert capfd.readouterr() == ("", "")


def test_migrations_and_deletions_are_logged_with_counts(path, events):
    url = f"sqlite:///{path}"
    with Memory.open(url, model=ScriptedModel(), budget=Budget(context=80, reply=20)) as memory:
        for key in ("a", "b", "c"):
            session = memory.session(key)
            session.pin("role", SECRET)
            session.reply(SECRET)
        session.delete_message(1)
        memory.delete("a")
        memory.purge(timedelta(0))
        memory.session("d").append("user", SECRET)
        memory.delete_user("default")
    downgrade(url, "0011")
    upgrade(url)

    moves = [(one["before"], one["after"]) for one in events("schema_migrated")]
    assert moves[1:] == [(moves[0][1], "0011"), ("0011", moves[0][1])]
    assert [one["num_messages"] for one in events("session_deleted")] == [2]
    assert [one["num_messages"] for one in events("messages_deleted")] == [1]
    (purged,) = events("sessions_purged")
    assert (purged["num_sessions"], purged["num_messages"]) == (2, 4)
    (gone,) = events("user_deleted")
    assert (gone["num_sessions"], gone["num_messages"]) == (1, 1)


def test_a_password_is_masked(new_postgres_url, events):  # noqa: F811
    url = new_postgres_url.replace("@", f":{SECRET}@", 1)
    upgrade(re.sub(r"(://[^:/@]*)(?::[^@]*)?@", rf"\1:{SECRET}@", url))

    (moved,) = events("schema_migrated")
    assert "***" in moved["place"]


def test_long_waits_are_logged_and_short_ones_are_not(path, events):
    config = DatabaseConfig(lock_timeout_s=1.3)
    with Memory.open(f"sqlite:///{path}", database=config) as memory:
        session = memory.session("trip")
        session.append("user", SECRET)
        assert events("database_waited") == []
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(DatabaseBusyError):
            session.append("user", SECRET)
        other.close()

    (waited,) = events("database_waited")
    assert waited["seconds"] > 1
    assert (waited["attempts"] > 0, waited["is_stored"]) == (True, False)


def test_damaged_rows_and_lost_files_are_logged_once(path, tmp_path, events):
    with Memory.open(f"sqlite:///{path}") as memory:
        session = memory.session("damaged")
        for _ in range(3):
            session.append("user", SECRET)
        raw = sqlite3.connect(path)
        raw.execute("UPDATE message SET parts = ? WHERE position = 2", (f"{{{SECRET}",))
        raw.execute("UPDATE message SET role = ? WHERE position = 3", (SECRET.encode(),))
        raw.commit()
        raw.close()
        for _ in range(3):
            session.messages()
        path.rename(tmp_path / "elsewhere.db")
        for _ in range(2):
            with pytest.raises(StoreError):
                session.append("user", SECRET)

    rows = [(one["table"], one["position"]) for one in events("row_damaged")]
    assert rows == [("message", 2), ("message", 3)]
    assert len(events("database_file_lost")) == 1


class FailingEmbedder(HashingEmbedder):
    def embed_passages(self, texts):
        if SECRET in str(texts):
            raise RuntimeError(f"cannot embed {texts}")
        return super().embed_passages(texts)

    def embed_query(self, text):
        raise RuntimeError(f"cannot embed {text}")


def test_what_fails_in_the_background_is_named_without_its_texts(path, events):
    def fail(_is_cancelled):
        raise ValueError(f"cannot sum up {SECRET}")

    retriever = HybridRetriever(FailingEmbedder())
    with Memory.open(f"sqlite:///{path}", retriever=retriever) as memory:
        session = memory.session("trip")
        session.append("user", "Hello.")
        assert memory.wait_for_index(5)
        session.append("user", SECRET)
        memory.wait_for_index(5)
        session.search(SECRET)
        memory._background.ask("key", fail)
        memory.wait_for_compactions(5)

    assert {one["error"] for one in events("embedding_failed")} == {"RuntimeError"}
    assert [one["error"] for one in events("question_not_embedded")] == ["RuntimeError"]
    assert events("compaction_failed") == [{"error": "ValueError", "failures": 1}]


@pytest.mark.slow
def test_requests_that_are_refused_cancelled_and_preempted_are_logged(events):
    with tiny_model(max_waiting=1, kv_bytes=64 << 10) as model:
        with pytest.raises(AdmissionError):
            model.generate(ask(random_ids(5000), 1))
        waiting = model.submit(ask(random_ids(10), 5))
        with pytest.raises(QueueFullError):
            model.submit(ask(random_ids(10), 5))
        waiting.close()
        model.generate(ask(random_ids(10), 3))
        engine = model._engine
        stream = iter(model.submit(ask(random_ids(10), 9)))
        next(stream)
        engine._exclusive(lambda: engine._batcher._preempt(engine._scheduler.running[0]))
        assert list(stream)

    refused = [one["error"].split(":")[0] for one in events("request_refused")]
    assert refused == ["AdmissionError", "QueueFullError"]
    assert events("request_cancelled") == [{"num_prompt": 10, "num_generated": 0}]
    assert [one["num_prompt"] for one in events("request_preempted")] == [10]
    (unloaded,) = events("model_unloaded")
    assert unloaded["weight_bytes"] > 0


@pytest.mark.slow
def test_a_step_that_fails_is_logged(events):
    with tiny_model() as model:
        model._log_loaded(0.5)
        step, failures = model._engine._batcher.step, iter([RuntimeError(SECRET)])

        def failing(now):
            for error in failures:
                raise error
            return step(now)

        model._engine._batcher.step = failing
        model.generate(ask(random_ids(10), 2))

    (loaded,) = events("model_loaded")
    assert (loaded["device"], loaded["seconds"]) == ("cpu", 0.5)
    assert loaded["weight_bytes"] > 0
    assert events("step_failed") == [{"error": "RuntimeError", "failures": 1}]


def test_a_row_of_another_database_with_the_same_ids_is_logged_too(tmp_path, events):
    for name in ("one.db", "two.db"):
        with Memory.open(f"sqlite:///{tmp_path / name}") as memory:
            session = memory.session("damaged")
            session.append("user", SECRET)
            raw = sqlite3.connect(tmp_path / name)
            raw.execute("UPDATE message SET role = 'whim'")
            raw.commit()
            raw.close()
            for _ in range(2):
                session.messages()

    assert [one["position"] for one in events("row_damaged")] == [1, 1]
