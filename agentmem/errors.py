"""
Every exception of the package, in one tree.

    AgentMemError
    ├── ConfigError (ValueError)             a setting that cannot work
    ├── InvalidInputError (ValueError)       a value refused at the door; nothing was stored
    │   ├── InvalidTextError                 NUL or surrogates in a text
    │   ├── TranscriptError                  a message that breaks the order of calls and results
    │   └── DamagedFileError                 an export that is not what was written
    ├── StoreError
    │   ├── DatabaseUrlError (ValueError)    no database can be opened under that URL
    │   ├── SchemaVersionError               the database is older or newer than this package
    │   ├── DatabaseBusyError                the lock or connection did not come in time
    │   ├── ReadOnlyDatabaseError            the database was opened for reading only
    │   ├── SessionNotFoundError (LookupError)
    │   ├── PinNotFoundError (LookupError)
    │   ├── DamagedRowError                  a row of the database cannot be read
    │   └── ConflictError                    another writer changed the row first
    ├── ContextOverflowError                 pins and current turn do not fit the budget
    ├── RetrievalError
    │   ├── VectorError (ValueError)         a vector that cannot be compared with others
    │   ├── DamagedIndexError                an index file that is not what was written
    │   ├── IndexFileError (OSError)         an index file that cannot be written or removed
    │   └── RetrieverClosedError             it was closed; open the memory again
    └── InferenceError
        ├── ModelLoadError                   no model can be loaded from there
        ├── OutOfBlocksError                 the KV pool has too few free blocks right now
        ├── AdmissionError                   the request can never fit this model or its pool
        ├── QueueFullError                   too many requests wait already
        └── DeadlineError (TimeoutError)     the request's time was over before it began

Each also inherits the builtin that a stranger would catch. Numbers are attributes; the
message says what happened, with the numbers, and what to do.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

E = TypeVar("E", bound="AgentMemError")


class AgentMemError(Exception):
    """
    Base of every error that this package raises on purpose.

    Each can be pickled and copied with its message and attributes, so that it reaches the caller
    from another process as it was raised.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made again from its message, which an __init__ with fields does not take.
        return _restored, (type(self), self.args), self.__dict__


class ConfigError(AgentMemError, ValueError):
    """A setting that cannot work, found when it was built."""


class InvalidInputError(AgentMemError, ValueError):
    """A value refused before anything was stored."""


class InvalidTextError(InvalidInputError):
    """
    A text that not every database can hold: it has a NUL or a surrogate code point.

    Attributes:
        index: where in the text the first such character stands.
    """

    def __init__(self, what: str, text: str, index: int) -> None:
        self.index = index
        code = ord(text[index])
        kind = "a NUL character" if code == 0 else "a lone surrogate"
        super().__init__(
            f"{what} has {kind} (U+{code:04X}) at index {index}, which cannot be stored: "
            "pass it through agentmem.repair_text() first, which puts U+FFFD in its place"
        )


class TranscriptError(InvalidInputError):
    """A message that would break the order of calls and results."""


class DamagedFileError(InvalidInputError):
    """An export that was cut, altered, or not written by this package; nothing was imported."""


class StoreError(AgentMemError):
    """The database refused or could not do what was asked; nothing was half done."""


class DatabaseUrlError(StoreError, ValueError):
    """No database can be opened under that URL."""


class ReadOnlyDatabaseError(StoreError):
    """Something was to be written in a database that was opened for reading only."""


class SchemaVersionError(StoreError):
    """
    The database is at another schema revision than this package.

    Attributes:
        found: the database's revision, None when its tables were made by something else.
        expected: the revision that this package writes.
    """

    def __init__(self, message: str, *, found: str | None, expected: str) -> None:
        self.found = found
        self.expected = expected
        super().__init__(message)


class DatabaseBusyError(StoreError):
    """A lock or a connection did not come in time; the operation can be retried as it is."""


class SessionNotFoundError(StoreError, LookupError):
    """No such session, branch or message for this namespace and user."""


class PinNotFoundError(StoreError, LookupError):
    """No pin of that key was ever set in that scope."""


class ConflictError(StoreError):
    """Another writer changed the row first; read again and decide again."""


class DamagedRowError(StoreError):
    """
    A row of the database cannot be read: it was altered from outside, or the file is damaged.

    A message that cannot be read does not raise this: a stand-in takes its place.

    Attributes:
        table: the kind of row.
        column: the one that cannot be read, None where it is not known.
        session: key of the session that it belongs to, as far as it can be told.
        branch: name of that branch.
        position: of the message.
        reason: what is wrong with it.
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
    The parts that may not be cut do not fit into the budget.

    Attributes:
        tokens_by_tier: what each tier that may not be cut would need.
        context: tokens of the whole window.
        reply: tokens kept free for the reply.
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
    """A search of earlier messages failed; the store is as it was."""


class VectorError(RetrievalError, ValueError):
    """A vector that cannot be compared: not finite, all zero, or of another dimension."""


class DamagedIndexError(RetrievalError):
    """An index file that is cut, altered, or of something else; it is made anew, never used."""


class IndexFileError(RetrievalError, OSError):
    """An index file that cannot be written or removed; the message names it and the reason."""


class RetrieverClosedError(RetrievalError):
    """It was closed and finds nothing any more."""


class InferenceError(AgentMemError):
    """The local model could not do what was asked."""


class ModelLoadError(InferenceError):
    """No model can be loaded from there; the message names the place and the reason."""


class OutOfBlocksError(InferenceError):
    """
    The KV pool has too few free blocks right now; nothing was taken.

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
        free: tokens that the KV pool had room for at the moment; None where there is no pool.
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
    Too many requests wait already; this one was not taken.

    Attributes:
        waiting: how many wait.
        limit: how many may.
    """

    def __init__(self, *, waiting: int, limit: int) -> None:
        self.waiting = waiting
        self.limit = limit
        super().__init__(
            f"{waiting} requests wait already and the queue holds {limit}: try again later, or "
            "raise InferenceConfig.max_waiting"
        )


class DeadlineError(InferenceError, TimeoutError):
    """
    The request's time was over before it had a token.

    Attributes:
        timeout_s: the time that it was given, in seconds.
    """

    def __init__(self, *, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        super().__init__(
            f"the request had no token after its {timeout_s:g} s: give it more time or a higher "
            "priority, or let fewer requests run at once"
        )


def _restored(kind: type[E], args: tuple[Any, ...]) -> E:
    """Return an error of that kind as it was, without its ``__init__``."""
    error = kind.__new__(kind, *args)
    error.args = args
    return error
