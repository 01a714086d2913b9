"""PostgreSQL as it is found: hostile defaults, other encodings, driver options and poolers."""

from contextlib import contextmanager
from datetime import UTC, datetime

import psycopg
import pytest
from sqlalchemy import event, make_url

from agentmem.config import Budget
from agentmem.errors import DatabaseUrlError
from agentmem.memory import Memory
from agentmem.testing import WordCounter

# Fixtures of the store's tests: a server, and an empty database on it.
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401

TEXT = "Grüße – दिल्ली 🙂 \\ back'slash"  # noqa: RUF001 - not all texts are ASCII
HOSTILE = {
    "datestyle": "German, DMY",
    "intervalstyle": "sql_standard",
    "timezone": "Pacific/Chatham",
    "bytea_output": "escape",
    "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "10",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "on",
    "default_transaction_deferrable": "on",
    "transform_null_equals": "on",
    "client_encoding": "LATIN1",
}


def talk(url):
    """Everything that a database is asked: texts, moments, pins, prompts, bytes."""
    with Memory.open(url, counter=WordCounter(), budget=Budget(context=200, reply=20)) as memory:
        session = memory.session("s")
        session.pin("role", TEXT)
        for _ in range(8):
            session.append("user", TEXT)
            session.append("assistant", TEXT)
            session.assemble()
        assert session.check() == ()
        assert {stored.message.text for stored in session.messages()} == {TEXT}
        moment = session.messages()[-1].created_at
        assert abs((datetime.now(UTC) - moment).total_seconds()) < 600
        assert [one.num_messages for one in memory.sessions()] == [16]


@contextmanager
def database(server, name, options):
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0 {options}")
    try:
        yield server.get_uri(database=name)
    finally:
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def set_for(url, what):
    # The second statement must not be read-only by the first.
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        for name, value in HOSTILE.items():
            connection.execute(f"ALTER {what} SET {name} = '{value}'")


def test_no_default_of_a_database_changes_what_is_stored(new_postgres_url):  # noqa: F811
    set_for(new_postgres_url, f"DATABASE {make_url(new_postgres_url).database}")

    talk(new_postgres_url)


@pytest.mark.parametrize("style", ["SQL, DMY", "Postgres, MDY"])
def test_no_date_style_of_a_role_changes_what_is_stored(new_postgres_url, postgres, style):  # noqa: F811
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        (role,) = connection.execute("SELECT current_user").fetchone()
        connection.execute(f"ALTER ROLE \"{role}\" SET datestyle = '{style}'")
        connection.execute(f"ALTER ROLE \"{role}\" SET timezone = 'Asia/Kathmandu'")
    try:
        talk(new_postgres_url)
    finally:
        with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
            connection.execute(f'ALTER ROLE "{role}" RESET ALL')


def test_a_database_without_an_encoding_keeps_every_text(postgres):  # noqa: F811
    with database(postgres, "ascii_db", "ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'") as url:
        talk(url)


@pytest.mark.parametrize("encoding", ["LATIN1", "EUC_JP"])
def test_an_encoding_that_cannot_hold_every_text_is_refused_in_one_line(postgres, encoding):  # noqa: F811
    options = f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
    with (
        database(postgres, "narrow_db", options) as url,
        pytest.raises(DatabaseUrlError, match=encoding) as caught,
    ):
        Memory.open(url)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        "prepare_threshold=0",
        "prepare_threshold=None",
        "prepare_threshold=3",
        "connect_timeout=5&sslmode=prefer&application_name=mine",
        "options=-csearch_path%3Dpublic",
    ],
)
def test_options_in_the_url_are_taken_as_the_driver_wants_them(new_postgres_url, options):  # noqa: F811
    sign = "&" if "?" in new_postgres_url else "?"

    talk(f"{new_postgres_url}{sign}{options}")


@pytest.mark.parametrize(
    "options",
    ["prepare_threshold=soon", "autocommit=1", "row_factory=x", "none=1", "client_encoding=LATIN1"],
)
def test_an_option_that_cannot_work_is_named_in_one_line(options):
    with pytest.raises(DatabaseUrlError, match=options.partition("=")[0]) as caught:
        Memory.open(f"postgresql://ann:hunter2@127.0.0.1:1/x?{options}")

    assert "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("drop", ["DISCARD ALL", "DEALLOCATE ALL; RESET ALL"])
def test_a_session_on_the_server_that_others_use_in_between_is_enough(new_postgres_url, drop):  # noqa: F811
    """What a transaction pooler does to a session: everything kept in it is gone."""
    with Memory.open(new_postgres_url, counter=WordCounter()) as memory:
        engine = memory._store.database.engine

        @event.listens_for(engine, "checkin")
        def forget(connection, _record):
            connection.rollback()
            connection.autocommit = True
            connection.execute(drop, prepare=False)
            connection.autocommit = False

        session = memory.session("s")
        for number in range(20):
            session.append("user", f"{number}")
            session.assemble()
            session.messages()
        limits = memory._store.database.write(
            lambda connection: connection.exec_driver_sql("SHOW lock_timeout").scalar()
        )

    assert limits == "20s"
