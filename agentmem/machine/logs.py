"""
Structured logging with the standard library, under the logger ``agentmem``.

Each record has the attribute ``event``, the fields of that event, and a human-readable line. None
has a text of a message, pin, summary or query, or a password: exceptions of other packages and of
databases appear by class only, since their messages may quote texts.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from agentmem.errors import DamagedIndexError, IndexFileError, InferenceError

EVENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "schema_migrated": ("place", "before", "after", "seconds"),
    "database_waited": ("place", "attempts", "seconds", "is_stored"),
    "database_file_lost": ("path",),
    "row_damaged": ("table", "column", "session_id", "branch_id", "position"),
    "session_deleted": ("namespace", "session_id", "num_branches", "num_messages"),
    "user_deleted": ("namespace", "num_sessions", "num_messages"),
    "message_replaced": ("branch_id", "old", "new", "author"),
    "messages_deleted": ("namespace", "num_branches", "num_messages"),
    "sessions_purged": ("namespace", "num_sessions", "num_messages"),
    "log_purged": ("namespace", "num_accounts"),
    "vectors_in_memory": ("error",),
    "vectors_unusable": ("reason",),
    "embedding_failed": ("error", "num_set_aside"),
    "question_not_embedded": ("error",),
    "index_file_failed": ("error",),
    "prompt_warning": ("branch_id",),
    "compaction_failed": ("error", "failures"),
    "model_loaded": ("model", "device", "dtype", "weight_bytes", "max_kv_bytes", "seconds"),
    "model_unloaded": ("model", "weight_bytes", "kv_bytes", "seconds"),
    "model_failed_late": ("error",),
    "request_refused": ("error", "num_prompt", "num_waiting"),
    "request_cancelled": ("num_prompt", "num_generated"),
    "request_preempted": ("num_prompt", "num_generated", "num_preempted"),
    "step_failed": ("error", "failures"),
    "prefix_cache_dropped": ("error",),
}
"""The fields of each event. docs/operations.md lists when each is logged."""

_QUOTES_NOTHING: Final = (DamagedIndexError, IndexFileError, InferenceError)
_MOST_SEEN: Final = 1000

ROOT: Final = logging.getLogger("agentmem")
# Nothing is printed unless the program configures logging.
ROOT.addHandler(logging.NullHandler())


def log(logger: logging.Logger, level: int, event: str, line: str, **fields: Any) -> None:
    """Log *event* with its *fields*; *line* is human-readable, with fields in braces."""
    if logger.isEnabledFor(level):
        assert fields.keys() == set(EVENTS[event]), f"{event} has the fields {EVENTS[event]}"
        shown = line.format_map(fields)
        logger.log(level, "%s", shown, extra={"event": event, **fields}, stacklevel=2)


def nature(error: BaseException) -> str:
    """Describe an error for a log: by class, with its message only where it cannot quote texts."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, _QUOTES_NOTHING) else name


class Once:
    """Remembers which keys were logged, so that each is logged once."""

    def __init__(self) -> None:
        self._seen: set[object] = set()

    def __call__(self, key: object) -> bool:
        """Whether *key* is new."""
        if key in self._seen:
            return False
        if len(self._seen) >= _MOST_SEEN:
            self._seen.clear()
        self._seen.add(key)
        return True
