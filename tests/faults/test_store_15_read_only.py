"""Databases that may only be read are read, and nothing is left beside them."""

import os
import shutil
import sqlite3
import subprocess
import sys

import pytest

from agentmem.config import Budget
from agentmem.errors import DatabaseUrlError, StoreError
from agentmem.memory import Memory
from agentmem.testing import WordCounter

READING = (["sessions"], ["show", "s"], ["pins", "s"], ["truncations", "s"], ["check", "s"])
needs_setpriv = pytest.mark.skipif(
    os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may write everything"
)


@pytest.fixture
def path(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    place = folder / "m.db"
    with Memory.open(f"sqlite:///{place}", counter=WordCounter()) as memory:
        session = memory.session("s")
        session.pin("role", "You are terse.")
        session.append("user", "hello there")
        session.assemble()
    yield place
    folder.chmod(0o755)


def without_rights(code):
    """Run Python as an owner whom the mode of a file binds; root's capabilities are dropped."""
    dropped = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
    return subprocess.run(
        [*dropped, sys.executable, "-c", code], capture_output=True, text=True, check=False
    )


def protect(path, how):
    path.chmod(0o444)
    path.parent.chmod(0o755 if how == "folder writable" else 0o555)
    if how == "file writable":
        path.chmod(0o644)


@pytest.mark.slow
@needs_setpriv
@pytest.mark.parametrize("how", ["folder writable", "file writable", "both protected"])
def test_reading_commands_work_without_rights_and_leave_nothing(path, how):
    protect(path, how)
    before = {one: one.read_bytes() for one in path.parent.iterdir()}

    commands = [[*command, "-d", f"sqlite:///{path}"] for command in READING]
    done = without_rights(
        "import sys; from agentmem.cli import main\n"
        f"for command in {commands!r}:\n"
        "    sys.argv[1:] = command\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, command\n"
    )
    assert (done.returncode, done.stderr) == (0, "")
    out = without_rights(
        "import tempfile; from agentmem.memory import Memory\n"
        f"memory = Memory.open('sqlite:///{path}', read_only=True)\n"
        "print(memory.export(tempfile.mkdtemp() + '/e.jsonl').messages)"
    )

    assert out.stdout == "1\n", out.stderr
    assert {one: one.read_bytes() for one in path.parent.iterdir()} == before


@pytest.mark.slow
@needs_setpriv
def test_a_look_does_not_keep_the_owner_from_writing(path):
    protect(path, "folder writable")
    without_rights(f"from agentmem.memory import Memory; Memory.open('sqlite:///{path}')")
    path.chmod(0o644)

    with Memory.open(f"sqlite:///{path}") as memory:
        memory.session("s").append("user", "written")

    assert sorted(one.name for one in path.parent.iterdir()) == ["m.db"]


@pytest.mark.slow
@needs_setpriv
def test_opening_for_writing_without_rights_names_read_only(path):
    protect(path, "both protected")

    done = without_rights(f"from agentmem.memory import Memory; Memory.open('sqlite:///{path}')")

    assert "agentmem.errors.StoreError" in done.stderr
    assert "read_only=True" in done.stderr


@pytest.mark.slow
@needs_setpriv
@pytest.mark.parametrize("kept", [("-wal", "-shm"), ("-wal",)])
def test_what_a_crashed_writer_left_in_its_log_is_read(path, kept):
    with Memory.open(f"sqlite:///{path}") as memory:
        memory.session("s").append("user", "only in the log")
        copy = path.parent / "crashed.db"
        for suffix in ("", *kept):
            shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
    for one in path.parent.iterdir():
        one.chmod(0o444)
    path.parent.chmod(0o555)
    names = {one.name for one in path.parent.iterdir()}

    done = without_rights(
        "from agentmem.memory import Memory\n"
        f"with Memory.open('sqlite:///{copy}', read_only=True) as memory:\n"
        "    print([one.message.text for one in memory.find('s').messages()])"
    )

    assert "only in the log" in done.stdout, done.stderr
    assert {one.name for one in path.parent.iterdir()} == names


def test_every_write_is_refused_and_the_file_stays_as_it_is(path):
    before = path.read_bytes()
    with Memory.open(f"sqlite:///{path}", counter=WordCounter(), read_only=True) as memory:
        session = memory.find("s")
        for write in (
            lambda: session.append("user", "x"),
            lambda: session.pin("a", "b"),
            lambda: session.assemble(budget=Budget(context=99, reply=9)),
            lambda: memory.session("new"),
            lambda: memory.delete("s"),
            lambda: memory.load(path.parent / "none.jsonl"),
        ):
            with pytest.raises((StoreError, ValueError)):
                write()
        assert [one.message.text for one in session.messages()] == ["hello there"]
        assert memory.session("s").pins()[0].text == "You are terse."

    assert path.read_bytes() == before
    assert [one.name for one in path.parent.iterdir()] == ["m.db"]


def test_a_reader_sees_what_a_writer_adds_meanwhile(path):
    url = f"sqlite:///{path}"
    with Memory.open(url, read_only=True) as reader, Memory.open(url) as writer:
        writer.session("s").append("user", "later")

        assert [one.message.text for one in reader.find("s").messages()][-1] == "later"


def test_reading_makes_no_database(tmp_path):
    place = tmp_path / "none.db"

    with pytest.raises(DatabaseUrlError, match=r"none\.db"):
        Memory.open(f"sqlite:///{place}", read_only=True)

    assert not place.exists()


def test_an_empty_file_is_no_database_and_stays_empty(tmp_path):
    place = tmp_path / "empty.db"
    place.touch()

    with pytest.raises(DatabaseUrlError):
        Memory.open(f"sqlite:///{place}", read_only=True)

    assert place.read_bytes() == b""


def test_another_journal_mode_is_left_as_it_is(path):
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()
    before = path.read_bytes()

    with Memory.open(f"sqlite:///{path}", read_only=True) as memory:
        assert memory.find("s").messages()

    assert path.read_bytes() == before
