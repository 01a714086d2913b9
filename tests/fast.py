"""
Which tests `make fast` runs: one case of each that needs this process alone.

Left out are tests marked ``slow``, ``model`` or ``gpu``, those that need the weights of a model or
a PostgreSQL server, and every case of a test but its first. A test that is chosen and yet starts
another process, or takes seconds, fails here and in the whole suite until it is marked ``slow``.
"""

import os
import sys
import time
from collections.abc import Iterator

import pytest

LIMIT_S = 4.0
"""CPU time that a test may take that is not marked; most take milliseconds, machines differ."""

IS_FAST = pytest.StashKey[bool]()
MARKS = ("slow", "model", "gpu")
FIXTURES = {"postgres", "real_model", "real_model_fp32"}
_started: list[str] = []


def choose(items: list[pytest.Item]) -> None:
    """Note in each of *items* whether it is one of the fast."""
    names = set()
    for item in items:
        name = item.nodeid.split("[")[0]
        item.stash[IS_FAST] = not _is_slow(item) and name not in names
        if item.stash[IS_FAST]:
            names.add(name)


def _is_slow(item: pytest.Item) -> bool:
    fixtures = set(getattr(item, "fixturenames", ()))
    values = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return (
        any(item.get_closest_marker(mark) for mark in MARKS)
        or not FIXTURES.isdisjoint(fixtures)
        or any(isinstance(value, str) and value == "postgres" for value in values)
    )


def notice_processes() -> None:
    """Note from now on what starts an interpreter or a copy of this process."""

    def hook(event: str, _arguments: tuple[object, ...]) -> None:
        if event in {"os.fork", "subprocess.Popen"}:
            _started.append(event)

    sys.addaudithook(hook)


def watched(item: pytest.Item) -> Iterator[None]:
    """Fail a fast test that is none."""
    num_started, began, own = len(_started), time.process_time(), os.getpid()
    yield
    if not item.stash[IS_FAST] or os.getpid() != own:
        return
    took = time.process_time() - began
    if len(_started) > num_started:
        pytest.fail(f"it starts a process ({_started[-1]}): mark it with pytest.mark.slow")
    if took > LIMIT_S:
        pytest.fail(f"it takes {took:.1f} s of CPU time, over {LIMIT_S}: mark it slow, or cut it")
