"""A database file that is removed or replaced while it is open takes no write."""

import os
import shutil

import pytest

from agentmem import Memory
from agentmem.errors import StoreError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


def unlink_all(path):
    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")  # noqa: PTH108 - the names share their beginning


def unlink_file(path):
    path.unlink()


def unlink_log(path):
    path.with_name("agent.db-wal").unlink()


def unlink_shared_memory(path):
    path.with_name("agent.db-shm").unlink()


def move(path):
    path.rename(path.with_name("elsewhere.db"))


def replace(path):
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    copy.replace(path)


@pytest.mark.parametrize(
    "harm", [unlink_all, unlink_file, unlink_log, unlink_shared_memory, move, replace]
)
def test_nothing_is_acknowledged_in_a_file_that_is_gone(path, harm):
    with Memory.open(f"sqlite:///{path}") as memory:
        session = memory.session("trip")
        session.append("user", "kept")
        harm(path)
        for write in (
            lambda: session.append("user", "lost"),
            lambda: session.append("user", "lost", client_key="k"),
            lambda: session.pin("role", "lost"),
            lambda: memory.session("new"),
        ):
            with pytest.raises(StoreError, match="removed or replaced"):
                write()

        # What the open file has can still be saved.
        assert [one.message.text for one in session.messages()] == ["kept"]


def test_a_removed_file_is_not_made_anew_by_another_thread(path):
    with Memory.open(f"sqlite:///{path}") as memory:
        memory.session("trip").append("user", "kept")
        unlink_all(path)
        memory._store.database.engine.pool.dispose()
        with pytest.raises(StoreError, match="removed or replaced"):
            memory.session("trip")

    assert not path.exists()


def test_a_file_that_is_put_back_can_be_opened_again(path):
    with Memory.open(f"sqlite:///{path}") as memory:
        memory.session("trip").append("user", "kept")
        move(path)
        with pytest.raises(StoreError):
            memory.session("trip").append("user", "lost")
        path.with_name("elsewhere.db").rename(path)
        memory.session("trip").append("user", "kept too")

    with Memory.open(f"sqlite:///{path}") as memory:
        texts = [one.message.text for one in memory.session("trip").messages()]
        assert texts == ["kept", "kept too"]


def test_a_relative_path_stays_the_same_file_in_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with Memory.open("sqlite:///agent.db") as memory:
        memory.session("trip").append("user", "one")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        memory.session("trip").append("user", "two")

        assert len(memory.session("trip").messages()) == 2
