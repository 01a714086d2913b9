"""The model libraries' own bars and warnings, kept from the user's terminal."""

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

from transformers.utils import logging as library_logging

# The library's functions carry no types.
_library: Any = library_logging


@contextlib.contextmanager
def quiet_libraries() -> Iterator[None]:
    """Show no progress bar, warning or log line of the model libraries in this block."""
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
