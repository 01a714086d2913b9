import json
import shutil
import sqlite3
from dataclasses import replace

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, inspect, text

from agentmem.context import check_conservation
from agentmem.errors import DatabaseUrlError, SchemaVersionError
from agentmem.protocols import Embedding
from agentmem.store import Store, current, downgrade, head, revisions, upgrade
from agentmem.store.database import alembic_runner, migrate
from agentmem.store.database.urls import parse_url
from agentmem.types import DisplayForm, Span, Tier
from tests import tables as tables_at_once
from tests.builders import call, say
from tests.store.processes import ROOT, finish, start
from tests.store.prompt_log.test_prompt_log import prompt_of, summary

pytestmark = pytest.mark.usefixtures("every_migration")

OPEN_AND_APPEND = """
import sys
from agentmem.store import Store
from agentmem.types import Message, Role, Scope, TextPart

with Store.open(sys.argv[1]) as store:
    main = store.sessions.get_or_create(Scope(), "k").main
    store.messages.append(Scope(), main, [Message(role=Role.USER, parts=(TextPart(text="x"),))])
"""


@pytest.fixture
def execute():
    """Run SQL on a database without the store."""

    def run(url, *statements):
        engine = create_engine(parse_url(url))
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        engine.dispose()

    return run


def tables(url):
    engine = create_engine(parse_url(url))
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names


def test_migrations_build_exactly_the_tables_in_schema(new_url):
    """If this fails, a model changed without a migration, or the reverse."""
    upgrade(new_url)

    engine = create_engine(parse_url(new_url))
    with engine.begin() as connection:
        command.check(alembic_runner.config(connection))
    engine.dispose()


def test_the_sql_that_other_tests_make_their_databases_with_is_that_of_the_migrations(tmp_path):
    dumps = []
    for name, move in (("migrated", tables_at_once.migrated), ("at once", tables_at_once.move)):
        engine = create_engine(f"sqlite:///{tmp_path / name}")
        with engine.begin() as connection:
            move(connection, "head", "upgrade")
            dumps.append(list(connection.connection.driver_connection.iterdump()))
        engine.dispose()

    assert dumps[0] == dumps[1]


def test_the_listed_revisions_are_those_of_the_folder_and_have_one_head():
    """If this fails, a migration was added and not listed in `migrate.REVISIONS`."""
    scripts = ScriptDirectory.from_config(alembic_runner.config())

    newest_first = [script.revision for script in scripts.walk_revisions()]

    assert list(reversed(migrate.REVISIONS)) == newest_first
    assert scripts.get_heads() == [head()]


def test_an_empty_database_is_made_when_it_is_opened(new_url):
    assert current(new_url) is None

    Store.open(new_url).close()

    assert current(new_url) == head()


@pytest.mark.slow
def test_every_migration_goes_down_and_up_again_with_data(new_url, scope):
    with Store.open(new_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
        store.messages.append(scope, main, [say("user", "a"), call("1")], client_key="k")
        store.pins.set(scope, main, "a", "1")
        ids = [stored.id for stored in store.messages.read(scope, main)]
        vectors = [Embedding(message_id=number, first=0, last=1, vector=b"1234") for number in ids]
        store.retrieval_store(scope.namespace).add_embeddings("m", vectors)

    for revision in reversed(migrate.REVISIONS[:-1]):
        assert downgrade(new_url, revision) == revision
    assert upgrade(new_url) == head()

    with Store.open(new_url) as store:
        kept = store.messages.read(scope, main)
        assert [stored.message for stored in kept] == [say("user", "a"), call("1")]
        assert store.pins.visible(scope, main)[0].text == "1"
        assert len(store.retrieval_store(scope.namespace).not_embedded("m", after=0, limit=9)) == 2


def test_the_account_of_prompts_balances_after_the_way_down_and_up(new_url, scope):
    with Store.open(new_url) as store:
        session = store.sessions.get_or_create(scope, "trip")
        store.messages.append(scope, session.main, [say("user", text) for text in "abcd"])
        short = summary(session.main)
        layout = (
            Span(first=1, last=2, tier=Tier.SUMMARY, source=short.key),
            Span(first=3, last=3, tier=Tier.RECENT, form=DisplayForm.CLIPPED, kept_chars=7),
            Span(first=4, last=4, tier=Tier.CURRENT),
        )
        for named in (True, False):
            prompt = prompt_of(
                session.main, head=4, truncated=named, layout=layout, summaries=(short,)
            )
            store.prompt_log.record(scope, prompt)

    downgrade(new_url, "0001")
    upgrade(new_url)

    with Store.open(new_url) as store:
        kept = store.prompt_log.assemblies(scope, session.id)
        assert {info.layout for info in kept} == {(Span(first=1, last=2, tier=None), *layout[1:])}
        records = store.prompt_log.truncations(scope, session.id)
        clipped = replace(records[0], first=3, last=3)
        assert check_conservation(kept, (*records, clipped)) == ()
        store.prompt_log.record(scope, prompt)


def test_the_short_log_of_prompts_is_written_out_on_the_way_down(new_url, scope):
    with Store.open(new_url) as store:
        session = store.sessions.get_or_create(scope, "trip")
        store.messages.append(scope, session.main, [say("user", text) for text in "abcdefgh"])
        short = summary(session.main)
        layout = (
            Span(first=1, last=2, tier=Tier.SUMMARY, source=short.key),
            Span(first=3, last=4, tier=Tier.RETRIEVED, anchor=5, times=3),
            Span(first=5, last=5, tier=None),
            Span(first=6, last=6, tier=Tier.RECENT, form=DisplayForm.CLIPPED, kept_chars=7),
            Span(first=7, last=8, tier=Tier.CURRENT),
        )
        prompt = prompt_of(session.main, head=8, truncated=True, layout=layout, summaries=(short,))
        (record,) = prompt.truncations
        runs = [(1, 1, 3), (5, 5, None), (7, 8, 0)]
        several = tuple(replace(record, first=f, last=la, num_tokens=n) for f, la, n in runs)
        for truncations in (several, (record,), several):
            store.prompt_log.record(scope, replace(prompt, truncations=truncations))
        before = (
            store.prompt_log.assemblies(scope, session.id),
            store.prompt_log.truncations(scope, session.id),
        )
    downgrade(new_url, "0009")
    engine = create_engine(parse_url(new_url))
    with engine.begin() as connection:
        layouts = connection.execute(text("SELECT layout, tokens_by_tier FROM assembly")).all()
        rows = connection.execute(text("SELECT first, num_tokens FROM truncation ORDER BY id"))
        written = [tuple(row) for row in rows]
    engine.dispose()
    named = {(first, num) for first, _, num in runs}
    assert len(written) == 7
    assert set(written[:3]) == set(written[4:]) == named
    assert {json.loads(spans)[1][0] for spans, _ in layouts} == {3}
    assert {type(json.loads(tokens)) for _, tokens in layouts} == {dict}

    upgrade(new_url)

    with Store.open(new_url) as store:
        after = (
            store.prompt_log.assemblies(scope, session.id),
            store.prompt_log.truncations(scope, session.id),
        )
        assert after == before
        store.prompt_log.record(scope, prompt)


def test_vectors_made_of_thoughts_are_forgotten_by_the_upgrade(new_url, scope):
    with Store.open(new_url) as store:
        main = store.sessions.get_or_create(scope, "s").main
        said = [
            say("user", "do you think so"),
            say("assistant", "<think>zebra</think>four"),
            say("assistant", "[THINK]zebra[/THINK]five"),
            say("assistant", "plain"),
        ]
        store.messages.append(scope, main, said)
        ids = [one.id for one in store.messages.read(scope, main)]
        vectors = [Embedding(message_id=one, first=0, last=3, vector=b"1234") for one in ids]
        store.retrieval_store(scope.namespace).add_embeddings("m", vectors)
    downgrade(new_url, "0003")
    assert upgrade(new_url) == head()
    engine = create_engine(parse_url(new_url))
    with engine.begin() as connection:
        kept = (
            connection.execute(text("SELECT message_id FROM embedding ORDER BY 1")).scalars().all()
        )
    engine.dispose()
    assert kept == [ids[0], ids[3]]
    with Store.open(new_url) as store:
        again = store.retrieval_store(scope.namespace).not_embedded("m", after=0, limit=9)
        assert [one.id for one in again] == ids[1:3]


def test_the_way_down_to_nothing_leaves_nothing(new_url):
    upgrade(new_url)

    assert downgrade(new_url, "base") is None

    assert tables(new_url) == {"alembic_version"}
    Store.open(new_url).close()
    assert current(new_url) == head()


@pytest.mark.parametrize("revision", ["0001", revisions()[-2]])
def test_an_older_database_is_refused_with_the_command_that_helps(new_url, revision):
    upgrade(new_url, revision)

    with pytest.raises(SchemaVersionError, match="agentmem db upgrade --database") as caught:
        Store.open(new_url)

    assert (caught.value.found, caught.value.expected) == (revision, head())
    assert current(new_url) == revision
    upgrade(new_url)
    Store.open(new_url).close()


def test_a_password_is_not_in_the_advice(new_postgres_url):
    url = new_postgres_url.replace("postgres:@", "postgres:hunter2@")
    assert "hunter2" in url
    upgrade(url, "0001")

    with pytest.raises(SchemaVersionError) as caught:
        Store.open(url)

    assert "hunter2" not in str(caught.value)


@pytest.mark.slow
def test_an_installed_package_carries_its_migrations(tmp_path):
    """A wheel holds the folder inside the package; here it is laid out as a wheel would be."""
    hidden = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "agentmem", tmp_path / "agentmem", ignore=hidden)
    shutil.copytree(ROOT / "migrations", tmp_path / "agentmem" / "migrations", ignore=hidden)

    finish(start(OPEN_AND_APPEND, f"sqlite:///{tmp_path / 'agent.db'}", folder=tmp_path))

    assert current(f"sqlite:///{tmp_path / 'agent.db'}") == head()


def test_a_newer_database_is_refused_and_not_touched(new_url, execute):
    upgrade(new_url)
    execute(
        new_url,
        "UPDATE alembic_version SET version_num = '9999'",
        "UPDATE compatibility SET oldest = '9998'",
    )

    for attempt in (Store.open, upgrade, current):
        with pytest.raises(SchemaVersionError, match="9999") as caught:
            attempt(new_url)
        assert (caught.value.found, caught.value.expected) == ("9999", head())

    assert "branch" in tables(new_url)


def test_a_database_of_something_else_is_refused_and_not_touched(new_url, execute):
    execute(new_url, "CREATE TABLE customers (id INTEGER PRIMARY KEY)")

    for attempt in (Store.open, upgrade, current):
        with pytest.raises(SchemaVersionError, match="customers"):
            attempt(new_url)

    assert tables(new_url) == {"customers"}


def test_an_emptied_revision_table_does_not_make_foreign_tables_ours(new_url, execute):
    execute(
        new_url,
        "CREATE TABLE customers (id INTEGER PRIMARY KEY)",
        "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)",
    )

    for attempt in (Store.open, upgrade, current):
        with pytest.raises(SchemaVersionError, match=r"\(customers\)"):
            attempt(new_url)

    assert tables(new_url) == {"customers", "alembic_version"}


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_a_database_in_memory_has_no_revision_to_move(url):
    for attempt in (upgrade, current, lambda url: downgrade(url, "base")):
        with pytest.raises(DatabaseUrlError, match="nothing to upgrade"):
            attempt(url)


def test_a_revision_that_does_not_exist_is_one_error(new_url):
    upgrade(new_url)

    with pytest.raises(SchemaVersionError, match="no-such"):
        downgrade(new_url, "no-such")

    assert current(new_url) == head()


def test_a_database_that_is_at_two_revisions_is_refused(new_url, execute):
    upgrade(new_url)
    execute(new_url, "INSERT INTO alembic_version VALUES ('0001')")

    for attempt in (Store.open, upgrade, current):
        with pytest.raises(SchemaVersionError, match=f"0001, {head()}"):
            attempt(new_url)


def test_an_older_revision_is_no_upgrade_and_a_newer_one_no_downgrade(new_url):
    upgrade(new_url, "0001")

    with pytest.raises(SchemaVersionError, match="cannot downgrade"):
        downgrade(new_url, head())

    assert current(new_url) == "0001"


@pytest.mark.slow
def test_processes_that_open_an_empty_database_at_once_make_it_once(new_url, scope):
    processes = [start(OPEN_AND_APPEND, new_url) for _ in range(4)]

    for process in processes:
        finish(process)

    with Store.open(new_url) as store:
        assert current(new_url) == head()
        (info,) = store.sessions.list(type(scope)())
        assert info.num_messages == 4


def test_a_path_with_percent_signs_is_a_path(tmp_path):
    folder = tmp_path / "100%done %(here)s"
    folder.mkdir()
    url = f"sqlite:///{folder / 'agent.db'}"

    Store.open(url).close()

    assert current(url) == head()
    assert (folder / "agent.db").exists()


def test_a_refused_sqlite_file_is_left_byte_for_byte(tmp_path):
    path = tmp_path / "other.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE customers (id INTEGER)")
    connection.close()
    before = path.read_bytes()

    with pytest.raises(SchemaVersionError):
        Store.open(f"sqlite:///{path}")

    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["other.db"]
