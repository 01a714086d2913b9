"""A process goes on working on tables that a newer version has migrated, where that allows it."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from agentmem.cli.app import app
from agentmem.config import Budget, DatabaseConfig
from agentmem.errors import SchemaVersionError
from agentmem.memory import Memory
from agentmem.store import current, downgrade, head, revisions, upgrade
from agentmem.store.database import alembic_runner, migrate
from agentmem.store.database import compatibility as known
from agentmem.store.database.urls import parse_url
from agentmem.testing import ScriptedModel
from tests.builders import words

# Fixtures of the store's tests: an empty database of each kind that processes share.
from tests.store.conftest import new_postgres_url, new_url, postgres  # noqa: F401

NEXT = f"{int(head()) + 1:04}"
AFTER = f"{int(head()) + 2:04}"
ADDS = """
    op.add_column("message", sa.Column("mood", sa.Text(), nullable=True))
    op.add_column("session", sa.Column("rank", sa.BigInteger(), server_default="7", nullable=False))
    op.create_table(
        "rating",
        sa.Column("message_id", sa.BigInteger(), nullable=False),
        sa.Column("stars", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("message_id"),
        sa.ForeignKeyConstraint(["message_id"], ["message.id"], ondelete="CASCADE"),
    )
"""
TAKES_AWAY = """
    op.execute("DROP TABLE rating")
    op.execute("ALTER TABLE session DROP COLUMN rank")
    op.execute("ALTER TABLE message DROP COLUMN mood")
"""
BREAKS = 'op.execute("ALTER TABLE message RENAME COLUMN parts TO pieces")'
MENDS = 'op.execute("ALTER TABLE message RENAME COLUMN pieces TO parts")'


def migration(number, before, up, down, *, breaks):
    return (
        f"import sqlalchemy as sa\nfrom alembic import op\nrevision = '{number}'\n"
        f"down_revision = '{before}'\nbranch_labels = depends_on = None\n"
        f"breaks_older_code = {breaks}\n\ndef upgrade():\n    {up.strip()}\n\n"
        f"def downgrade():\n    {down.strip()}\n"
    )


@pytest.fixture
def newer(tmp_path, monkeypatch):
    """Run a block as the version after this one would: with more migrations."""
    folder = tmp_path / "migrations"
    shutil.copytree(Path(migrate.__file__).parents[3] / "migrations", folder)

    @contextmanager
    def version(*, breaks):
        files = {NEXT: migration(NEXT, head(), ADDS, TAKES_AWAY, breaks=False)}
        if breaks:
            files[AFTER] = migration(AFTER, NEXT, BREAKS, MENDS, breaks=True)
        for number, source in files.items():
            (folder / "versions" / f"{number}_simulated.py").write_text(source)
        with monkeypatch.context() as patch:
            patch.setattr(alembic_runner, "_folder", lambda: folder)
            patch.setattr(known, "REVISIONS", (*revisions(), *files))
            yield

    return version


def play(memory, key):
    session = memory.session(key)
    session.pin("role", "You are a travel agent.")
    for number in range(6):
        session.reply(words(10, f"n{number}"))
    with session.subtask("look") as task:
        task.reply("Look it up.")
        task.promote("It is blue.")
    session.delete_message(1)
    assert session.check() == ()
    assert session.audit(integrity=True)
    assert not any(one.discrepancies for one in session.audit(integrity=True))


def opened(url, **options):
    return Memory.open(url, model=ScriptedModel(), budget=Budget(context=80, reply=20), **options)


def test_code_of_before_works_on_additions_that_came_before_and_while_it_is_open(
    new_url,  # noqa: F811
    newer,
    tmp_path,
):
    file = tmp_path / "all.jsonl"
    with opened(new_url) as memory:
        play(memory, "before")
        with newer(breaks=False):
            assert upgrade(new_url) == NEXT
        memory.find("before").append("user", "while it is open")
        play(memory, "while")

    with opened(new_url) as memory:
        play(memory, "after")
        assert len(memory.sessions()) == 3
        memory.export(file, user="default")
        for key in ("before", "while", "after"):
            memory.delete(key)
        assert memory.load(file).sessions == 3
        assert all(memory.find(one.key).check() == () for one in memory.sessions())
    assert (current(new_url), upgrade(new_url)) == (NEXT, NEXT)

    with newer(breaks=False):
        assert downgrade(new_url, head_of(2)) == head_of(2)
    with opened(new_url) as memory:
        assert len(memory.sessions()) == 3


def head_of(number):
    """The newest revision but *number* - 1."""
    return known.REVISIONS[-number]


def test_tables_of_newer_code_alone_are_refused_in_one_line_that_names_both(new_url, newer):  # noqa: F811
    with opened(new_url):
        pass
    with newer(breaks=True):
        assert upgrade(new_url) == AFTER

    for attempt in (opened, current, upgrade, lambda url: opened(url, read_only=True)):
        with pytest.raises(SchemaVersionError) as caught:
            attempt(new_url)
        assert (caught.value.found, caught.value.expected) == (AFTER, head())
        message = str(caught.value)
        assert "\n" not in message
        assert f"revision {AFTER}" in message
        assert f"supports {head()}" in message
        assert f"agentmem db downgrade {head()}" in message
    with pytest.raises(SchemaVersionError):
        app(["sessions", "-d", new_url], standalone_mode=False)

    with newer(breaks=True):
        assert downgrade(new_url, NEXT) == NEXT
    opened(new_url).close()


def test_a_migration_that_breaks_ends_what_is_open(new_url, newer):  # noqa: F811
    with opened(new_url) as memory:
        session = memory.session("trip")
        session.append("user", "Hello.")
        with newer(breaks=True):
            upgrade(new_url)
        for attempt in (session.messages, lambda: session.append("user", "x"), memory.sessions):
            with pytest.raises(SchemaVersionError, match=AFTER):
                attempt()
        with newer(breaks=True):
            downgrade(new_url, NEXT)
        assert len(session.messages()) == 1


def test_a_database_that_is_taken_back_while_it_is_open_is_named(new_url, monkeypatch):  # noqa: F811
    monkeypatch.setattr(known, "_LOOK_AGAIN_S", 0.0)
    with opened(new_url) as memory:
        memory.session("trip")
        downgrade(new_url, "0011")

        with pytest.raises(SchemaVersionError, match="agentmem db upgrade") as caught:
            memory.sessions()

    assert (caught.value.found, caught.value.expected) == ("0011", head())


def test_a_revision_that_is_no_later_number_is_refused(new_url):  # noqa: F811
    opened(new_url).close()
    engine = create_engine(parse_url(new_url))
    for strange in ("abcd", "0000", "12.5"):
        with engine.begin() as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": strange})
        with pytest.raises(SchemaVersionError, match=strange):
            opened(new_url)
    engine.dispose()


def test_statements_that_postgresql_has_prepared_survive_a_change_of_types(new_postgres_url):  # noqa: F811
    config = DatabaseConfig(pool_size=1, max_overflow=0)
    with opened(new_postgres_url, database=config) as memory:
        session = memory.session("trip")
        session.append("user", "Hello.")
        for _ in range(12):
            session.messages()
        engine = create_engine(parse_url(new_postgres_url))
        with engine.begin() as connection:
            connection.execute(text("ALTER TABLE message ALTER COLUMN name TYPE varchar(4000)"))
        engine.dispose()

        assert len(session.messages()) == 1


def test_each_migration_states_whether_it_breaks_older_code():
    folder = Path(migrate.__file__).parents[3] / "migrations" / "versions"

    silent = [
        path.name
        for path in sorted(folder.glob("0*.py"))
        if path.name >= "0012" and "\nbreaks_older_code = " not in path.read_text()
    ]

    assert silent == []
