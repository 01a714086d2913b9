"""Interfaces of retrieval: the retriever, its search index, and the store that it reads."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

from agentmem.errors import InvalidInputError
from agentmem.types import BranchId, IndexHealth, MessageId, Scope, SessionId, StoredMessage
from agentmem.types.fields import Checked, check_fields
from agentmem.types.passages import TextRange, excerpt


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit(Checked):
    """A search hit: a message and its score, higher is better."""

    stored: StoredMessage
    score: float
    is_local: bool = True
    """Whether its position is in the branch that searches."""

    ranks: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Its rank, from 1, in each ranking that found it, such as ``lexical`` and ``dense``."""

    times: int = 1
    """The number of duplicates by this speaker, including this one, the newest."""

    passages: tuple[TextRange, ...] = ()
    """
    The parts of a long message that match: start and end of characters of its `memory_text`, the
    end not included. Empty for the whole message.
    """

    superseded_by: int | None = None
    """Position of the later message of this conversation that replaced it; None if none did."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.passages:
            size = len(self.stored.message.memory_text)
            if not all(0 <= start < end <= size for start, end in self.passages):
                raise InvalidInputError(
                    f"passages of a Hit are ranges of the {size} characters of its message, got "
                    f"{self.passages!r:.80}"
                )

    @property
    def text(self) -> str:
        """The text that matches: the whole message, or its passages with marks at the gaps."""
        text = self.stored.message.memory_text
        return excerpt(text, self.passages) if self.passages else text


def first_messages(hits: Iterable[Hit], limit: int) -> tuple[Hit, ...]:
    """Return the first *hits* of at most *limit* messages, which may have several passages each."""
    found: list[Hit] = []
    message_ids: set[MessageId] = set()
    for hit in hits:
        message_ids.add(hit.stored.id)
        if len(message_ids) > limit:
            break
        found.append(hit)
    return tuple(found)


INDEX_SUFFIX: Final = ".vectors"
"""Suffix of index files."""

INDEX_PART: Final = ".part"
"""Suffix of temporary files of unfinished ones."""

INDEX_LOCK: Final = ".lock"
"""The lock file of an index folder, held while an index file is saved or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchScope(Checked):
    """The scope of an index: one session, or all sessions of a user."""

    scope: Scope
    session_id: SessionId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRange(Checked):
    """
    A branch and its own messages: positions *forked_at* + 1 to *head*.

    They are written in order and the head moves in the same transaction, so a reader up to the head
    misses none, also under concurrent writes to other branches.
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

    *vector* is float32, little-endian; empty for a text without content, which is not retried.
    """

    message_id: MessageId
    first: int
    last: int
    vector: bytes = field(repr=False)


class VectorTable(Protocol):
    """The stored vectors of one embedder, in a database with vector search."""

    def fill(self, message_ids: Sequence[MessageId]) -> Mapping[MessageId, bool]:
        """Load the embedded ones of *message_ids*; return whether each of these has a vector."""
        ...

    def search(
        self, vector: bytes, message_ids: Sequence[MessageId], limit: int
    ) -> Sequence[tuple[MessageId, float]]:
        """
        Compare *message_ids*, all of them loaded, with *vector*: float32, little-endian.

        Return the *limit* closest, best first, each with the inner product of its best vector.
        """
        ...


class RetrievalStore(Protocol):
    """The messages, as a retriever reads them, and their stored vectors."""

    @property
    def folder(self) -> Path | None:
        """Folder of files that can be rebuilt; None where no file may be written."""
        ...

    def branch_ranges(self, search_scope: SearchScope) -> Sequence[BranchRange]:
        """Return the current branches of *search_scope*, ordered by id; empty if it was deleted."""
        ...

    def read(
        self, search_scope: SearchScope, branch_id: BranchId, first: int, last: int
    ) -> Sequence[StoredMessage]:
        """Return the branch's own messages *first* to *last*; empty outside of *search_scope*."""
        ...

    def get(
        self, search_scope: SearchScope, message_ids: Sequence[MessageId]
    ) -> Sequence[StoredMessage]:
        """Return the *message_ids* that are of *search_scope* and were not deleted."""
        ...

    def embeddings(self, fingerprint: str, message_ids: Sequence[MessageId]) -> Sequence[Embedding]:
        """Return the vectors of *message_ids* by that embedder, ordered by message and position."""
        ...

    def add_embeddings(self, fingerprint: str, embeddings: Sequence[Embedding]) -> None:
        """Store vectors, except those of deleted or already embedded messages."""
        ...

    def not_embedded(
        self, fingerprint: str, *, after: MessageId, limit: int
    ) -> Sequence[StoredMessage]:
        """Return messages of all users without a vector of that embedder, ordered by id."""
        ...

    def table(self, fingerprint: str, dimension: int) -> VectorTable | None:
        """Return the table of that embedder's vectors; None without database vector search."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Checked):
    """
    A search query and its scope.

    Args:
        text: the query text.
        search scope: the session, or the user with all sessions.
        visible: first and last visible position, by branch of *session_id*; of other sessions
            only the main branch is visible, and needs no entry.
        session_id: the session that searches.
        limit: maximum number of hits.
        zone: the time zone of dates in the query.
        is_turn: whether the text is the newest turn, which need not be a question. A text that was
            written to search with is about earlier messages in any form.
    """

    text: str
    search_scope: SearchScope
    session_id: SessionId
    visible: Mapping[BranchId, tuple[int, int]] = field(hash=False)
    limit: int
    zone: tzinfo = UTC
    is_turn: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus(Checked):
    """Status of the index of one search scope."""

    num_messages: int
    """Searchable messages."""

    num_embedded: int
    """Messages with a vector, searchable by meaning."""

    num_pending: int
    """Messages without a vector yet."""

    dense_unavailable_reason: str | None
    """Why semantic search is off (words only); None if it is on."""

    fingerprint: str | None
    """Fingerprint of the embedder."""

    kind: str
    """The kind of vector index."""

    num_bytes: int
    """Approximate memory of the index, in bytes."""

    generation: int | None
    """Generation of the index file that was last read or written."""

    file_bytes: int | None
    """Size of the index file; None without one."""

    last_error: str | None
    """The last unresolved error of the embedder, a stored vector or a file."""


OnIndexProgress = Callable[[str, int, int], None]
"""Progress callback: (stage, done, total), in messages."""


class SearchIndex(Protocol):
    """A search index over one retrieval store. Thread-safe."""

    def search(self, query: Query) -> Sequence[Hit]:
        """
        Return matching messages, best first, without deleted ones.

        Messages committed before the call are searched by words at least, and by meaning once
        they are embedded.
        """
        ...

    def added(self) -> None:
        """Notify of a commit: new messages are embedded in the background."""
        ...

    def forget(self, scope: Scope, message_ids: Sequence[MessageId]) -> None:
        """Remove deleted messages from memory and from files."""
        ...

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until all messages are embedded; return whether they are."""
        ...

    def status(self, search_scope: SearchScope) -> IndexStatus:
        """Return the current index status of *search_scope*."""
        ...

    def rebuild(
        self, search_scope: SearchScope, on_progress: OnIndexProgress | None = None
    ) -> IndexStatus:
        """Rebuild the index of *search_scope* with its file; embed messages without a vector."""
        ...

    def close(self) -> None:
        """Stop background work and release memory. Idempotent."""
        ...


@runtime_checkable
class ReportingSearchIndex(Protocol):
    """Optional interface: a search index that reports the health of its background work."""

    def health(self) -> IndexHealth:
        """Return without blocking, also while embedding or after closing."""
        ...


class Retriever(Protocol):
    """Opens search indexes of earlier messages."""

    def open_index(self, retrieval_store: RetrievalStore) -> SearchIndex:
        """Open a search index over *retrieval_store*."""
        ...
