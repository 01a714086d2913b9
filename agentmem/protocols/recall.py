"""What finds older messages, and what it reads them from."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from agentmem.types import BranchId, IndexHealth, MessageId, Scope, SessionId, StoredMessage
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Checked):
    """A message that was recalled, and how good a match it is: higher is better."""

    stored: StoredMessage
    score: float
    is_local: bool = True
    """Whether its position is one of the branch that it is recalled for."""

    ranks: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Its place, from 1 on, in each ranking that found it, such as ``lexical`` and ``dense``."""

    times: int = 1
    """How many messages of this speaker say the same, this one included, which is the newest."""


INDEX_SUFFIX: Final = ".vectors"
"""How the names of index files end."""

INDEX_PART: Final = ".part"
"""How the names of unfinished ones end."""

INDEX_LOCK: Final = ".lock"
"""The file in an index folder that is locked while another one is saved or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Domain(Checked):
    """Whose messages one index holds: those of one session, or of all sessions of a user."""

    scope: Scope
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent(Checked):
    """
    A branch and the messages of its own: positions *forked_at* + 1 to *head*.

    They are written in that order and the head moves with them, so a reader that has read up to the
    head has missed nothing, whatever other branches are being written.
    """

    session_id: SessionId
    branch_id: BranchId
    parent: BranchId | None
    forked_at: int
    head: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedding(Checked):
    """
    The vector of a message, or of the characters *first* to *last* of a long one.

    *vector* is float32, little-endian; empty where there was nothing to embed, so that no one
    tries again.
    """

    message_id: MessageId
    first: int
    last: int
    vector: bytes = field(repr=False)


class VectorTable(Protocol):
    """The stored vectors of one embedder, where the database can compare them itself."""

    def fill(self, message_ids: Sequence[MessageId]) -> Mapping[MessageId, bool]:
        """Take up what is embedded of *message_ids*, and tell of each such whether it has one."""
        ...

    def search(
        self, vector: bytes, message_ids: Sequence[MessageId], limit: int
    ) -> Sequence[tuple[MessageId, float]]:
        """
        Compare *message_ids*, all of which were taken up, with *vector*: float32, little-endian.

        Gives the *limit* closest, best first, each with the inner product of its best vector.
        """
        ...


class Archive(Protocol):
    """The messages, as a retriever reads them, and the vectors that it has stored."""

    @property
    def folder(self) -> Path | None:
        """Where files that can be made anew may stand; None where nothing may outlive it."""
        ...

    def extents(self, domain: Domain) -> Sequence[Extent]:
        """List the branches of *domain*, by their ids, as they are now; nothing if it is gone."""
        ...

    def read(
        self, domain: Domain, branch_id: BranchId, first: int, last: int
    ) -> Sequence[StoredMessage]:
        """Return the branch's own messages *first* to *last*; nothing if it is not of *domain*."""
        ...

    def get(self, domain: Domain, message_ids: Sequence[MessageId]) -> Sequence[StoredMessage]:
        """Return those of *message_ids* that are of *domain* and still say something."""
        ...

    def embeddings(self, fingerprint: str, message_ids: Sequence[MessageId]) -> Sequence[Embedding]:
        """Return the vectors that *message_ids* have of that embedder, by message and place."""
        ...

    def add_embeddings(self, fingerprint: str, embeddings: Sequence[Embedding]) -> None:
        """Store vectors; those of messages that are gone, or embedded already, are left out."""
        ...

    def not_embedded(
        self, fingerprint: str, *, after: MessageId, limit: int
    ) -> Sequence[StoredMessage]:
        """Return messages, of whomever, without a vector of that embedder, by their ids."""
        ...

    def table(self, fingerprint: str, dimension: int) -> VectorTable | None:
        """Return the vectors of that embedder as a table; None where the database has no such."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Checked):
    """
    What is looked for, and where.

    Args:
        text: the question.
        domain: the session, or the user with all sessions.
        visible: first and last position that may be found, by branch of *session_id*; of other
            sessions only the main branch may be, and needs no entry.
        session_id: the session that is asking.
        limit: how many hits are wanted at most.
        zone: the time zone that the question's dates are of.
    """

    text: str
    domain: Domain
    session_id: SessionId
    visible: Mapping[BranchId, tuple[int, int]] = field(hash=False)
    limit: int
    zone: tzinfo = UTC


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallStatus(Checked):
    """How far one domain can be searched at this moment, and by what."""

    num_messages: int
    """Messages that can be found."""

    num_embedded: int
    """Those of them that can be found by their meaning."""

    num_pending: int
    """Those that are still to be embedded."""

    lexical_because: str | None
    """Why messages are found by their words alone; None where they are not."""

    fingerprint: str | None
    """Of the embedder."""

    kind: str
    """How vectors are compared."""

    num_bytes: int
    """About how much memory the index takes."""

    generation: int | None
    """Of the index file that was read or written last."""

    file_bytes: int | None
    """Size of the index file, if there is one."""

    last_error: str | None
    """What went wrong last, with the embedder, a stored vector or a file, and is not mended."""


OnRecallProgress = Callable[[str, int, int], None]
"""Is told what is being done, and how many of how many messages are."""


class Recall(Protocol):
    """A retriever at work over one archive. Threads may share it."""

    def search(self, query: Query) -> Sequence[Hit]:
        """
        Find messages, best first, that still say something now.

        What was committed before the call is found, by its words at least; by its meaning once
        it is embedded.
        """
        ...

    def added(self) -> None:
        """Take note that something was committed and is to be embedded, soon and elsewhere."""
        ...

    def forget(self, scope: Scope, message_ids: Sequence[MessageId]) -> None:
        """Drop what is kept of messages that were deleted, in memory and in files."""
        ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until everything is embedded; tell whether it is."""
        ...

    def status(self, domain: Domain) -> RecallStatus:
        """Return how far *domain* can be searched at this moment."""
        ...

    def rebuild(self, domain: Domain, on_progress: OnRecallProgress | None = None) -> RecallStatus:
        """Make the index of *domain* anew, file included, and embed what is not embedded yet."""
        ...

    def close(self) -> None:
        """Stop the work in the background and give memory back. Can be called twice."""
        ...


@runtime_checkable
class ReportingRecall(Protocol):
    """A recall that can say how its work in the background goes; others need no such method."""

    def health(self) -> IndexHealth:
        """Return at once, also while it embeds or after it was closed."""
        ...


class Retriever(Protocol):
    """Finds earlier messages that might matter now."""

    def over(self, archive: Archive) -> Recall:
        """Begin to work over *archive*."""
        ...
