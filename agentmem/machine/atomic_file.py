"""Atomic writes of a file: a temporary file, then a rename."""

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from agentmem.errors import InvalidInputError
from agentmem.machine.file_lock import try_lock

_MAX_PREFIX: Final = 40
"""A name may have the maximum length; that of the temporary file is longer, so it is cut."""


@contextmanager
def atomic_write(path: Path) -> Iterator[IO[bytes]]:
    """
    Yield a temporary file that replaces *path* when the block ends, and is removed if it fails.

    It is in the same folder, readable by its owner only; one of a killed process is removed when
    the same file is written again. The target of a symbolic link is replaced, not the link.

    Raises:
        InvalidInputError: *path* exists and is not a regular file.
        OSError: the file cannot be written.
    """
    target = _target_of(path)
    prefix = f".{target.name[:_MAX_PREFIX]}.agentmem-"
    _remove_unfinished(target.parent, prefix)
    with replace_file(target, prefix=prefix) as file:
        try_lock(file)
        yield file


@contextmanager
def replace_file(path: Path, *, prefix: str, suffix: str = "") -> Iterator[IO[bytes]]:
    """
    Do what `atomic_write` does, under a temporary name between *prefix* and *suffix*.

    *path* is not checked, and what killed processes leave is for the caller to remove.

    Raises:
        OSError: the file cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix=prefix, suffix=suffix, dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """
    Sync the entries of *folder* to disk; Windows cannot open a folder.

    Raises:
        OSError: it cannot be read.
    """
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_unfinished(folder: Path, prefix: str) -> None:
    """Remove temporary files of killed processes, whose locks are free."""
    for path in folder.iterdir():
        if path.name.startswith(prefix):
            with suppress(OSError):
                with path.open("rb") as file:
                    is_left = try_lock(file)
                # Closed first, since Windows removes no open file. No name is used twice.
                if is_left:
                    path.unlink()


def _target_of(path: Path) -> Path:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    except ValueError as error:
        raise InvalidInputError(f"{str(path)!r} is not a file name: {error}") from error
    if mode is not None and stat.S_ISDIR(mode):
        raise InvalidInputError(f"{path} is a folder: name a file")
    if mode is not None and not stat.S_ISREG(mode):
        raise InvalidInputError(
            f"{path} is not a regular file, so it is not replaced: name another"
        )
    return Path(os.path.realpath(path))
