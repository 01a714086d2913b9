"""The home directory, where there is one."""

import os
from pathlib import Path

from agentmem.errors import ConfigError


def expanded(path: str | Path) -> Path:
    """
    Return *path* with ``~`` at its beginning replaced by the home directory.

    Raises:
        ConfigError: the user of this process has none.
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
    Return where converted models are kept.

    That is ``AGENTMEM_CACHE``, else ``agentmem`` in ``XDG_CACHE_HOME``, else ``~/.cache/agentmem``.

    Raises:
        ConfigError: neither is set and there is no home directory.
    """
    named, shared = os.environ.get("AGENTMEM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    if named:
        return expanded(named)
    # A relative one is to be ignored, its specification says.
    return (Path(shared) if Path(shared).is_absolute() else expanded("~/.cache")) / "agentmem"
