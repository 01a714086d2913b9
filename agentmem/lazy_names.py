"""Lazy imports of a package's public names (PEP 562)."""

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: dict[str, Any], homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """
    Return the ``__getattr__`` and ``__dir__`` of a package.

    Args:
        package: its ``globals()``, where imported names are cached.
        homes: the module of each name.
    """

    def getattr_(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        package[name] = value
        return value

    def dir_() -> list[str]:
        return sorted({*package, *package["__all__"]})

    return getattr_, dir_
