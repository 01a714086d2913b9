"""
An exclusive lock on an open file, which ends with its process.

POSIX has ``flock``. Windows locks bytes: here one far behind the end of the file, so that its
content can be read and written.
"""

import importlib
import time
from typing import IO, Any

_POLL_S = 0.01
_FAR = 0x7FFF_0000
"""Position of the byte that is locked; positions of up to 31 bits can be."""


def _first_of(*names: str) -> Any:
    """Return the first of those modules that this system has, and None without any."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


_system = _first_of("fcntl", "msvcrt")


def try_lock(file: IO[bytes]) -> bool:
    """
    Lock *file*, unless another open file has the lock; return whether it is locked now.

    Raises:
        OSError: the file system has no locks.
    """
    try:
        if hasattr(_system, "flock"):
            _system.flock(file, _system.LOCK_EX | _system.LOCK_NB)
        else:
            _locking(file, _system.LK_NBLCK)
    except BlockingIOError:
        return False
    except PermissionError:
        if hasattr(_system, "flock"):
            raise
        return False
    return True


def lock(file: IO[bytes], *, timeout_s: float) -> None:
    """
    Lock *file*, and wait for it up to *timeout_s*.

    Raises:
        TimeoutError: another process holds it.
        OSError: the file system has no locks.
    """
    deadline = time.monotonic() + timeout_s
    while not try_lock(file):
        if time.monotonic() > deadline:
            raise TimeoutError(f"another process has held {file.name} for {timeout_s:.0f} s")
        time.sleep(_POLL_S)


def unlock(file: IO[bytes]) -> None:
    """
    Unlock *file*.

    Closing it is not enough: a process that was forked meanwhile has it open too.
    """
    if hasattr(_system, "flock"):
        _system.flock(file, _system.LOCK_UN)
    else:
        _locking(file, _system.LK_UNLCK)


def _locking(file: IO[bytes], mode: int) -> None:
    position = file.tell()
    file.seek(_FAR)
    try:
        _system.locking(file.fileno(), mode, 1)
    finally:
        file.seek(position)
