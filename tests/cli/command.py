"""The command line: in this process, which takes milliseconds, or in one of its own."""

import io
import os
import subprocess
import sys

import pytest

from agentmem.cli import main


def agentmem(*arguments, stdin=""):
    """Run the entry point with streams of its own; return its exit code and what it printed."""
    streams = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8"),
        "stdout": io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
        "stderr": io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        patch.setattr(sys, "argv", ["agentmem", *arguments])
        patch.setenv("COLUMNS", "160")
        with pytest.raises(SystemExit) as ended:
            main()
    printed = {}
    for name in ("stdout", "stderr"):
        streams[name].flush()
        printed[name] = streams[name].buffer.getvalue().decode()
    return subprocess.CompletedProcess(arguments, ended.value.code or 0, **printed)


def agentmem_process(*arguments, stdin=""):
    """Do the same as a user does."""
    return subprocess.run(
        [sys.executable, "-c", "from agentmem.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        input=stdin,
        env={**os.environ, "COLUMNS": "160"},
        check=False,
    )
