"""A namespace binds what moves; nothing is deleted or created without being asked for."""

import json
from datetime import timedelta

import pytest

from agentmem.errors import InvalidInputError, SessionNotFoundError
from agentmem.memory import Memory
from agentmem.store import Store
from tests.cli.command import agentmem


@pytest.fixture
def url(tmp_path):
    place = f"sqlite:///{tmp_path / 'agent.db'}"
    for namespace in ("red", "blue"):
        for user in ("ann", "bob"):
            with Memory.open(place, namespace=namespace) as memory:
                memory.session("s", user=user).append("user", f"{namespace} of {user}")
    return place


def texts(url, namespace):
    with Memory.open(url, namespace=namespace) as memory:
        return [
            stored.message.text
            for user in memory.users()
            for info in memory.sessions(user=user)
            for stored in memory.find(info.key, user=user).messages()
        ]


def test_an_export_without_a_user_is_of_this_namespace(url, tmp_path):
    file = tmp_path / "e.jsonl"
    with Memory.open(url, namespace="red") as memory:
        moved = memory.export(file)

    assert (moved.sessions, moved.messages) == (2, 2)
    assert "blue" not in file.read_text()


def test_an_import_writes_in_this_namespace_alone(url, tmp_path):
    file, other = tmp_path / "e.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    with Memory.open(url, namespace="red") as memory:
        memory.export(file)
    with Memory.open(other, namespace="green") as memory:
        memory.load(file)

    assert texts(other, "green") == ["red of ann", "red of bob"]
    assert texts(other, "red") == []


def test_a_file_of_several_namespaces_gives_each_its_own(url, tmp_path):
    file, other = tmp_path / "e.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    with Store.open(url) as store:
        store.transfer.export(file)
    with Memory.open(other, namespace="green") as memory, pytest.raises(InvalidInputError) as no:
        memory.load(file)
    with Memory.open(other, namespace="blue") as memory:
        assert memory.load(file).messages == 2

    assert "blue" in str(no.value)
    assert texts(other, "blue") == ["blue of ann", "blue of bob"]
    assert texts(other, "red") == []


def test_the_command_line_moves_a_namespace(url, tmp_path):
    file, other = tmp_path / "e.jsonl", f"sqlite:///{tmp_path / 'other.db'}"

    out = agentmem("export", str(file), "-d", url, "-n", "red")
    back = agentmem("import", str(file), "-d", other, "-n", "red")
    users = agentmem("users", "-d", other, "-n", "red", "--json")

    assert (out.returncode, back.returncode) == (0, 0)
    assert json.loads(users.stdout) == ["ann", "bob"]
    assert texts(other, "red") == ["red of ann", "red of bob"]


def test_purge_asks_and_says_of_how_many_users(url):
    refused = agentmem("purge", "--older-than", "0s", "-d", url, "-n", "red", stdin="n\n")
    kept = texts(url, "red")
    done = agentmem("purge", "--older-than", "0s", "-d", url, "-n", "red", "--yes")

    assert refused.returncode == 130
    assert "2 sessions of 2 users" in refused.stdout + refused.stderr
    assert len(kept) == 2
    assert (done.returncode, texts(url, "red"), len(texts(url, "blue"))) == (0, [], 2)


@pytest.mark.parametrize(
    "command",
    [
        ["sessions"], ["users"], ["show", "s"], ["pins", "s"], ["truncations", "s"], ["check", "s"],
        ["export", "e.jsonl"], ["delete", "s", "--yes"], ["purge", "--older-than", "1d", "--yes"],
        ["db", "current"], ["db", "downgrade", "base", "--yes"], ["index", "status", "--lexical"],
        ["search", "s", "x", "--lexical"],
    ],
)  # fmt: skip
def test_a_command_for_what_is_there_makes_no_database(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)

    done = agentmem(*command, "-d", "sqlite:///none.db")

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_branch_of_another_session_is_refused(url):
    with Memory.open(url, namespace="red") as memory:
        one, other = memory.session("s", user="ann"), memory.session("t", user="ann")

        with pytest.raises(SessionNotFoundError):
            other.history(one.branch.id)

        assert one.history(one.branch.id).messages()
        assert memory.purge(timedelta(days=1)) == ()
