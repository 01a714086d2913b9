"""Atomic replacement of a file: write a temporary file, then rename."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path, *, prefix: str, suffix: str = "") -> Iterator[IO[bytes]]:
    """
    Yield a temporary file that replaces *path* when the block ends, and is removed if it fails.

    It is in the same folder, named *prefix* + random + *suffix*, synced to disk before the rename,
    and readable by its owner only.

    Raises:
        OSError: it cannot be written.
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
