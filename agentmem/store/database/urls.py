"""Database URLs: validation, drivers, and masked display."""

import os
import stat
from pathlib import Path
from typing import Final

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from agentmem.errors import DatabaseUrlError
from agentmem.store.database.error_translation import mask

_SUPPORTED: Final = "sqlite:///agent.db, sqlite:// (in memory) or postgresql://user@host/name"


def parse_url(text: str) -> URL:
    """
    Parse a database URL and set its driver.

    Raises:
        DatabaseUrlError: it is not a URL, or of an unsupported database.
    """
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        raise DatabaseUrlError(
            f"{mask(str(text))!r} is not a database URL: use {_SUPPORTED}"
        ) from error
    if url.drivername in {"sqlite", "sqlite+pysqlite"}:
        return _sqlite_url(url, text)
    if url.drivername in {"postgresql", "postgresql+psycopg", "postgres"}:
        return url.set(drivername="postgresql+psycopg")
    raise DatabaseUrlError(f"cannot open a {url.drivername!r} database: use {_SUPPORTED}")


def is_memory(url: URL) -> bool:
    """Whether *url* is of an in-memory SQLite database."""
    return url.get_backend_name() == "sqlite" and url.database in (None, "", ":memory:")


def is_file(url: URL) -> bool:
    """Whether *url* is of a SQLite database in a file."""
    return url.get_backend_name() == "sqlite" and not is_memory(url)


def place_of(url: URL) -> str:
    """Return *url* without its password."""
    return mask(url.render_as_string(hide_password=True))


def _sqlite_url(url: URL, text: str) -> URL:
    # SQLAlchemy drops a query without an equals sign, and would open the shorter path.
    if "?" in str(text) or url.query:
        raise DatabaseUrlError(
            f"a SQLite URL takes no options, got {mask(str(text))!r}: write a question mark that "
            "is part of a path as %3F"
        )
    if url.host:
        raise DatabaseUrlError(
            f"a SQLite URL has three slashes before a relative path and four before an absolute "
            f"one, got host {url.host!r}"
        )
    if not is_memory(url):
        url = url.set(database=_expanded(url.database or ""))
        try:
            _check_path(Path(url.database or ""))
        except OSError as error:
            raise DatabaseUrlError(
                f"cannot open {url.database}: {error.strerror or error}"
            ) from error
    return url.set(drivername="sqlite")


def _expanded(path: str) -> str:
    """
    Return *path* with a leading ``~`` or ``~user`` expanded.

    Raises:
        DatabaseUrlError: the home directory is unknown, or it is a URI or has a NUL.
    """
    if "\0" in path:
        raise DatabaseUrlError(f"{path!r} is not a file name: it has a NUL character")
    if path.startswith("file:"):
        raise DatabaseUrlError(f"{path!r} is a URI: name the file by its path after sqlite:///")
    found = os.path.expanduser(path)  # noqa: PTH111 - Path.expanduser raises a RuntimeError
    if path.startswith("~") and found == path:
        raise DatabaseUrlError(
            f"there is no home directory for {path!r}: set HOME, or write ./{path} for a file of "
            "that name"
        )
    return found


def _check_path(path: Path) -> None:
    if not path.parent.is_dir():
        raise DatabaseUrlError(
            f"the folder {path.parent} of the database does not exist: create it"
        )
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise DatabaseUrlError(f"{path} is a folder, not a database file")
    if not stat.S_ISREG(mode):
        raise DatabaseUrlError(f"{path} is not a regular file, so it cannot hold a database")
