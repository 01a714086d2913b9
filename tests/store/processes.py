"""What other processes and threads do in tests."""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def start(code, *arguments, folder=ROOT):
    """Run *code* with *arguments* in a new interpreter, as in production, seen from *folder*."""
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


def run_together(*works):
    """Run each of *works* in a thread of its own and give the errors that they raised."""
    failures = []

    def run(work):
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - whoever calls asserts on it
            failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return failures


def numbers_until_killed(write_for_ever):
    """
    Fork a writer, kill it at a random moment after its first number, and give its numbers.

    *write_for_ever* is given the pipe on which to put a number and a line feed for each thing done.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write_for_ever(writer)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        numbers = [int(pipe.readline())]
        delay = random.uniform(0, 0.04)  # noqa: S311 - any moment will do
        timer = threading.Timer(delay, os.kill, (child, signal.SIGKILL))
        timer.start()
        # A number that was cut by the kill has no end of line.
        numbers += [int(line) for line in pipe if line.endswith("\n")]
        timer.join()
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    return numbers
