"""Files with texts are their owner's alone, and none is left behind."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from agentmem.errors import InvalidInputError
from agentmem.memory import Memory


@pytest.fixture(params=[0o022, 0o777])
def umask(request):
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_new_database_files_are_their_owners_alone(tmp_path):
    with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        memory.session("s").append("user", "secret")
        modes = {one.name: stat.S_IMODE(one.stat().st_mode) for one in tmp_path.iterdir()}

    assert modes == {"m.db": 0o600, "m.db-wal": 0o600, "m.db-shm": 0o600}


def test_an_existing_database_keeps_its_mode(tmp_path):
    path = tmp_path / "m.db"
    Memory.open(f"sqlite:///{path}").close()
    path.chmod(0o640)

    Memory.open(f"sqlite:///{path}").close()

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


@pytest.mark.parametrize("name", ["a\0b", "\0"])
def test_a_name_with_nul_is_refused_in_words(tmp_path, name):
    with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        for move in (memory.load, memory.export):
            with pytest.raises(InvalidInputError):
                move(name)


@pytest.mark.slow
def test_what_a_killed_export_left_is_gone_with_the_next(tmp_path):
    url, target = f"sqlite:///{tmp_path / 'm.db'}", tmp_path / "e.jsonl"
    with Memory.open(url) as memory:
        memory.session("s").append("user", "secret")
        code = (
            "import os, signal; from pathlib import Path\n"
            "from agentmem.machine.atomic_file import atomic_write\n"
            f"with atomic_write(Path({str(target)!r})) as file:\n"
            "    file.write(b'secret'); file.flush(); os.kill(os.getpid(), signal.SIGKILL)"
        )
        killed = subprocess.run([sys.executable, "-c", code], check=False)
        left = [one for one in tmp_path.iterdir() if one.name.startswith(".e.jsonl")]
        memory.export(target)

    assert killed.returncode == -signal.SIGKILL
    assert len(left) == 1
    assert [one for one in tmp_path.iterdir() if one.name.startswith(".e.jsonl")] == []
