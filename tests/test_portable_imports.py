"""
The package on a system without the POSIX modules, as far as it can be shown on another one.

A process is made to lack them, and torch; in place of Windows' ``msvcrt`` stands a module that
notes what is locked.
"""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

WITHOUT_POSIX = """
import asyncio, importlib, os, pkgutil, sqlite3, sys, types

class Absent:
    names = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "torch"}

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"no module {name}", name=name.partition(".")[0])

for name in Absent.names:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Absent())
for name in ("register_at_fork", "fork", "fchmod", "fchown", "sysconf", "O_CLOEXEC", "getuid"):
    delattr(os, name)

msvcrt = types.ModuleType("msvcrt")
msvcrt.LK_NBLCK, msvcrt.LK_UNLCK, msvcrt.calls = 2, 0, []
msvcrt.locking = lambda handle, mode, count: msvcrt.calls.append(mode)
sys.modules["msvcrt"] = msvcrt
"""

IMPORT_ALL = """
import agentmem

lacking = set()
for module in pkgutil.walk_packages(agentmem.__path__, "agentmem.", onerror=lambda name: None):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert error.name == "torch", f"{module.name} needs {error.name}"
        lacking.add(".".join(module.name.split(".")[:2]))
print(*sorted(lacking))
"""

USE = """
from pathlib import Path
from agentmem import Memory
from agentmem.retrieval import HybridRetriever
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.testing import HashingEmbedder, ScriptedModel

url = f"sqlite:///{Path(sys.argv[1]) / 'agent.db'}"
recall = HybridRetriever(HashingEmbedder())
with Memory.open(url, model=ScriptedModel(["Hello."]), retriever=recall) as memory:
    session = memory.session("main")
    session.append("user", "The hotel is cheap.")
    print(session.reply("Good day.").text)
    print([one.message.role.value for one in session.messages()], len(session.assemble().messages))
    memory.export(Path(sys.argv[1]) / "all.jsonl")
    print(msvcrt.calls)
    with VectorFiles(Path(sys.argv[1]) / "index", "hashing").turn():
        print(msvcrt.calls)
    print(msvcrt.calls)
    session.delete_message(session.messages()[0].id)
"""


def run(script, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX + script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def test_each_module_that_needs_no_torch_is_imported_without_posix():
    [lacking] = run(IMPORT_ALL)

    # The command line has one such module, which loads the model of the demo.
    parts = ("cli", "inference", "machine", "retrieval")
    assert set(lacking.split()) <= {f"agentmem.{part}" for part in parts}


def test_a_store_is_written_read_exported_and_locked_without_posix(tmp_path):
    lines = run(USE, str(tmp_path))

    assert lines[0] == "Hello."
    assert lines[1].startswith("['user', 'user', 'assistant'] 3")
    assert lines[2:] == ["[2]", "[2, 2]", "[2, 2, 0]"]
