"""The memory of this computer."""

import ctypes
import os
import sys
from pathlib import Path
from typing import Any, ClassVar


class _MemoryStatus(ctypes.Structure):
    """``MEMORYSTATUSEX`` of the Windows API."""

    _fields_: ClassVar = [
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("total_page_file", ctypes.c_uint64),
        ("available_page_file", ctypes.c_uint64),
        ("total_virtual", ctypes.c_uint64),
        ("available_virtual", ctypes.c_uint64),
        ("available_extended", ctypes.c_uint64),
    ]


def total_memory() -> int:
    """Return the bytes of memory."""
    if sys.platform == "win32":
        return int(_windows_status().total)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int:
    """Return the bytes that are available without swap; half of all where it is not known."""
    if sys.platform == "win32":
        return int(_windows_status().available)
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        [available] = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
        return int(available) * 1024
    except (OSError, ValueError):
        return total_memory() // 2


def _windows_status() -> Any:
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined]  # on Windows only
    kernel.GlobalMemoryStatusEx(ctypes.byref(status))
    return status
