"""The home directory and the cache folder."""

import os
from pathlib import Path

from agentmem.errors import ConfigError


def expanded(path: str | Path) -> Path:
    """
    Return *path* with a leading ``~`` expanded.

    Raises:
        ConfigError: there is no home directory.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(
            f"there is no home directory for {str(path)!r}: set HOME, or name a folder by "
            "AGENTMEM_CACHE or XDG_CACHE_HOME"
        ) from error


def cache_folder() -> Path:
    """
    Return the cache folder of converted models.

    That is ``AGENTMEM_CACHE``, else ``agentmem`` in ``XDG_CACHE_HOME``, else ``~/.cache/agentmem``.

    Raises:
        ConfigError: neither is set and there is no home directory.
    """
    named, shared = os.environ.get("AGENTMEM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if named:
        return expanded(named)
    # The XDG specification: ignore relative paths.
    return (Path(shared) if Path(shared).is_absolute() else expanded("~/.cache")) / "agentmem"
