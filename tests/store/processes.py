"""What other processes do in tests: each is a new interpreter, as it would be in production."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def start(code, *arguments, folder=ROOT):
    """Run *code* with *arguments* in a process of its own, as seen from *folder*."""
    command = [sys.executable, "-W", "error", "-c", code, *map(str, arguments)]
    return subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finish(process, *, timeout=60):
    """Give what the process printed; it must have gone well."""
    with process:
        printed, complaint = process.communicate(timeout=timeout)
    assert process.returncode == 0, complaint
    return printed
