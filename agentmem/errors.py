"""
Every exception of the package, in one tree.

::

    AgentMemError
    ├── ConfigError (ValueError)             an invalid setting
    ├── InvalidInputError (ValueError)       an argument failed validation; nothing was stored
    │   ├── InvalidTextError                 NUL or surrogates in a text
    │   ├── TranscriptError                  a message that breaks the order of calls and results
    │   └── DamagedFileError                 a corrupt export
    ├── StoreError
    │   ├── DatabaseUrlError (ValueError)    the URL does not name a usable database
    │   ├── SchemaVersionError               the database is older or newer than this package
    │   ├── DatabaseBusyError                timeout of a lock or of the connection pool
    │   ├── ReadOnlyDatabaseError            a write to a read-only database
    │   ├── SessionNotFoundError (LookupError)
    │   ├── PinNotFoundError (LookupError)
    │   ├── ReplacementNotFoundError (LookupError)
    │   ├── DamagedRowError                  a corrupt row of the database
    │   └── ConflictError                    a concurrent writer changed the row first
    ├── ContextOverflowError                 pins and current turn do not fit the budget
    ├── RetrievalError
    │   ├── VectorError (ValueError)         an invalid vector
    │   ├── DamagedIndexError                a corrupt index file
    │   ├── IndexFileError (OSError)         an index file cannot be written or removed
    │   └── RetrieverClosedError             the retriever is closed; open the memory again
    └── InferenceError
        ├── ModelLoadError                   the model cannot be loaded
        ├── OutOfBlocksError                 the KV pool has too few free blocks right now
        ├── AdmissionError                   the request can never fit this model or its pool
        ├── QueueFullError                   the queue of waiting requests is full
        └── DeadlineError (TimeoutError)     the request timed out before its first token

Each also inherits the builtin exception that a caller would catch. Numbers are attributes; the
message states the cause, with the numbers, and a remedy.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

E = TypeVar("E", bound="AgentMemError")


class AgentMemError(Exception):
    """
    Base class of all errors of this package.

    Pickling and copying keep the message and the attributes, so that an error can cross processes.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # By default an exception is unpickled from its message, but an __init__ here takes fields.
        return _restored, (type(self), self.args), self.__dict__


class ConfigError(AgentMemError, ValueError):
    """An invalid setting, found on construction."""


class InvalidInputError(AgentMemError, ValueError):
    """An argument failed validation; nothing was stored."""


class InvalidTextError(InvalidInputError):
    """
    A text that not every database can store: it has a NUL or a surrogate code point.

    Attributes:
        index: of the first such character.
    """

    def __init__(self, what: str, text: str, index: int) -> None:
        self.index = index
        code = ord(text[index])
        kind = "a NUL character" if code == 0 else "a lone surrogate"
        super().__init__(
            f"{what} has {kind} (U+{code:04X}) at index {index}, which cannot be stored: "
            "pass it through agentmem.repair_text() first, which replaces it by U+FFFD"
        )


class TranscriptError(InvalidInputError):
    """A message that would break the order of tool calls and results."""


class DamagedFileError(InvalidInputError):
    """A corrupt or foreign export: truncated, altered, or of another program; none is imported."""


class StoreError(AgentMemError):
    """A database operation failed; its transaction was rolled back."""


class DatabaseUrlError(StoreError, ValueError):
    """The URL does not name a database that can be opened."""


class ReadOnlyDatabaseError(StoreError):
    """A write to a database that was opened read-only."""


class SchemaVersionError(StoreError):
    """
    The schema revision of the database is not that of this package.

    Attributes:
        found: the database's revision, None where its tables are another program's.
        expected: the revision of this package.
    """

    def __init__(self, message: str, *, found: str | None, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(message)


class DatabaseBusyError(StoreError):
    """A lock or a pooled connection timed out; the operation can be retried unchanged."""


class SessionNotFoundError(StoreError, LookupError):
    """No such session, branch or message for this namespace and user."""


class PinNotFoundError(StoreError, LookupError):
    """No pin of that key exists in that scope."""


class ReplacementNotFoundError(StoreError, LookupError):
    """No later message replaces this one on the branch."""


class ConflictError(StoreError):
    """A concurrent writer changed the row first; read it again and retry."""


class DamagedRowError(StoreError):
    """
    A corrupt row of the database: altered by another program, or the file is damaged.

    A corrupt message does not raise this: it is replaced by a placeholder.

    Attributes:
        table: of the row.
        column: that cannot be read, None where unknown.
        session: key of its session, where known.
        branch: name of its branch.
        position: of the message.
        reason: the defect.
    """

    def __init__(  # noqa: PLR0913 - the names of a place
        self,
        table: str,
        *,
        column: str | None = None,
        session: str | None = None,
        branch: str | None = None,
        position: int | None = None,
        reason: str = "",
    ) -> None:
        self.table = table
        self.column = column
        self.session = session
        self.branch = branch
        self.position = position
        self.reason = reason
        self._branch_id: int | None = None
        self._session_id: int | None = None
        places = {"session": session, "branch": branch, "position": position}
        where = ", ".join(
            f"{name} {value!r}" for name, value in places.items() if value is not None
        )
        what = "a row" if column is None else f"the column {column!r} of a row"
        of_what = f"{what} of {table!r}{f' ({where})' if where else ''}"
        super().__init__(
            f"{of_what} cannot be read: {reason}; restore the database from a backup or an export, "
            "or delete the session, which always works"
        )


class ContextOverflowError(AgentMemError):
    """
    The parts that cannot be truncated exceed the budget.

    Attributes:
        tokens_by_tier: tokens needed by each tier that cannot be truncated.
        context: tokens of the whole window.
        reply: tokens reserved for the reply.
    """

    def __init__(self, tokens_by_tier: Mapping[str, int], *, context: int, reply: int) -> None:
        self.tokens_by_tier = dict(tokens_by_tier)
        self.context = context
        self.reply = reply
        needed = sum(tokens_by_tier.values())
        table = ", ".join(f"{tier} {num}" for tier, num in tokens_by_tier.items())
        super().__init__(
            f"the prompt needs at least {needed} tokens ({table}) but the window of {context} less "
            f"{reply} for the reply leaves {context - reply}: shorten the pins or the current "
            "message, lower Budget.reply, or raise Budget.context; the messages stay stored"
        )


class RetrievalError(AgentMemError):
    """A search of earlier messages failed; the store is unchanged."""


class VectorError(RetrievalError, ValueError):
    """An invalid vector: not finite, all zero, or of another dimension."""


class DamagedIndexError(RetrievalError):
    """A corrupt or foreign index file; it is rebuilt, never used."""


class IndexFileError(RetrievalError, OSError):
    """An index file cannot be written or removed; the message names the file and the reason."""


class RetrieverClosedError(RetrievalError):
    """The retriever is closed and cannot search."""


class InferenceError(AgentMemError):
    """An operation of the local model failed."""


class ModelLoadError(InferenceError):
    """The model cannot be loaded; the message names the place and the reason."""


class OutOfBlocksError(InferenceError):
    """
    The KV pool has too few free blocks right now; none were allocated.

    Attributes:
        needed, free, total: numbers of blocks.
    """

    def __init__(self, *, needed: int, free: int, total: int) -> None:
        self.needed = needed
        self.free = free
        self.total = total
        super().__init__(
            f"need {needed} KV blocks but only {free} of {total} are free: wait for a request to "
            "finish, or raise InferenceConfig.kv_bytes"
        )


class AdmissionError(InferenceError):
    """
    The request can never fit, however long it waits.

    Attributes:
        needed: tokens of the prompt and the reply.
        limit: tokens that the model or its KV pool can hold.
        free: tokens of the free KV blocks at that moment; None where there is no pool.
    """

    def __init__(self, *, needed: int, limit: int, reason: str, free: int | None = None) -> None:
        self.needed = needed
        self.limit = limit
        self.free = free
        now = "" if free is None else f" (free now: {free})"
        super().__init__(
            f"the request needs {needed} tokens but {reason} holds {limit}{now}: shorten the "
            "prompt, lower max_tokens, or raise the limit"
        )


class QueueFullError(InferenceError):
    """
    The queue of waiting requests is full; this one was rejected.

    Attributes:
        waiting: number of waiting requests.
        limit: maximum of waiting requests.
    """

    def __init__(self, *, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(
            f"{waiting} requests wait already and the queue holds {limit}: retry later, or "
            "raise InferenceConfig.max_waiting"
        )


class DeadlineError(InferenceError, TimeoutError):
    """
    The request timed out before its first token.

    Attributes:
        timeout_s: its timeout in seconds.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        super().__init__(
            f"the request had no token after its {timeout_s:g} s: raise the timeout or its "
            "priority, or run fewer requests concurrently"
        )


def _restored(kind: type[E], args: tuple[Any, ...]) -> E:
    """Return an error of class *kind*, without calling its ``__init__``."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error
