"""Suppresses progress bars and warnings of the model libraries."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from transformers.utils import logging as library_logging

# The functions of the library are untyped.
_library: Any = library_logging


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Suppress progress bars, warnings and log lines of the model libraries in this block."""
    level, bars = _library.get_verbosity(), _library.is_progress_bar_enabled()
    _library.set_verbosity(logging.CRITICAL)
    _library.disable_progress_bar()
    try:
        # Some bars cannot be switched off; they write to the error stream.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        _library.set_verbosity(level)
        if bars:
            _library.enable_progress_bar()
