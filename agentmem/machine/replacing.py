"""A file that takes the place of another one as a whole, or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def replacing(path: Path, *, prefix: str, suffix: str = "") -> Iterator[IO[bytes]]:
    """
    Return a new file that takes the name *path* when the block ends, and is removed if it fails.

    Until then it stands beside it, on the disk and under a name between *prefix* and *suffix*, and
    only its owner may read it.

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
