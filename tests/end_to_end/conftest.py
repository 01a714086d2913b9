"""Tiny models run on one thread here too."""

from tests.inference.conftest import _one_thread

__all__ = ["_one_thread"]
