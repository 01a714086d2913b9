"""The memory of this computer, and of one that runs Windows."""

import ctypes
import sys
from types import SimpleNamespace

from agentmem.machine import memory
from agentmem.machine.memory import available_memory, total_memory


def test_some_of_the_memory_is_available():
    assert 0 < available_memory() <= total_memory()


def test_without_a_figure_of_the_system_half_of_the_memory_is_taken(monkeypatch):
    monkeypatch.setattr(
        memory, "Path", lambda _: SimpleNamespace(read_text=lambda: "MemFree: 5 kB")
    )

    assert available_memory() == total_memory() // 2


def test_on_windows_its_own_call_is_asked(monkeypatch):
    def fill(reference):
        status = reference._obj
        assert status.length == ctypes.sizeof(status) == 64
        status.total, status.available = 8 << 30, 3 << 30
        return 1

    kernel = SimpleNamespace(GlobalMemoryStatusEx=fill)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "windll", SimpleNamespace(kernel32=kernel), raising=False)

    assert total_memory() == 8 << 30
    assert available_memory() == 3 << 30
