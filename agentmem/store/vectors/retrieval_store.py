"""The retriever's view of the store: messages and vectors."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, exists, select

from agentmem.errors import DamagedRowError, IndexFileError, InvalidInputError, StoreError
from agentmem.machine import file_lock
from agentmem.protocols import (
    INDEX_LOCK,
    INDEX_PART,
    INDEX_SUFFIX,
    BranchRange,
    Embedding,
    SearchScope,
)
from agentmem.store.database.database import Database
from agentmem.store.database.schema import (
    AnyRow,
    AnySelect,
    BranchRow,
    EmbedderRow,
    EmbeddingRow,
    MessageRow,
    OwnerRow,
    SessionRow,
)
from agentmem.store.database.tenancy import check_id, check_position, is_owner, owner_digest
from agentmem.store.transcript.branches import is_whole_branch
from agentmem.store.transcript.message_codec import decode
from agentmem.store.transcript.placeholders import read_all
from agentmem.store.transcript.sessions import insert_unless_there
from agentmem.store.vectors.pgvector import IN_TABLE, PgVectors, read_vectors
from agentmem.types import BranchId, MessageId, Origin, SessionId, StoredMessage

_PATIENCE_S: Final = 60.0
"""How long the lock of the index files is waited for."""

_CHUNK: Final = 500
"""Ids per statement: SQLite limits the number of parameters."""

_BYTES_PER_FLOAT: Final = 4
_NO_VECTOR: Final = b"\0"

_SAYS_SOMETHING: Final = MessageRow.origin != Origin.DELETED.value
_OWNED: Final = and_(OwnerRow.id == SessionRow.owner_id, is_owner())
_BRANCH_RANGES: Final = (
    select(
        BranchRow.id,
        BranchRow.session_id,
        BranchRow.parent_id,
        BranchRow.forked_at,
        BranchRow.head,
    )
    .join(SessionRow, SessionRow.id == BranchRow.session_id)
    .join(OwnerRow, _OWNED)
    .order_by(BranchRow.id)
)
_MESSAGES: Final[AnySelect] = (
    select(MessageRow.__table__)
    .join(BranchRow, BranchRow.id == MessageRow.branch_id)
    .join(SessionRow, SessionRow.id == BranchRow.session_id)
    .join(OwnerRow, _OWNED)
)
_RANGE: Final = _MESSAGES.where(
    MessageRow.branch_id == bindparam("branch"),
    MessageRow.position >= bindparam("from"),
    MessageRow.position <= bindparam("to"),
).order_by(MessageRow.position)
_BY_ID: Final = _MESSAGES.where(
    MessageRow.id.in_(bindparam("ids", expanding=True)), _SAYS_SOMETHING
)
_EMBEDDER: Final = select(EmbedderRow.id).where(EmbedderRow.fingerprint == bindparam("fingerprint"))
_EMBEDDINGS: Final[AnySelect] = (
    select(EmbeddingRow.message_id, EmbeddingRow.first, EmbeddingRow.last, EmbeddingRow.vector)
    .join(EmbedderRow, EmbedderRow.id == EmbeddingRow.embedder_id)
    .where(
        EmbedderRow.fingerprint == bindparam("fingerprint"),
        EmbeddingRow.message_id.in_(bindparam("ids", expanding=True)),
    )
    .order_by(EmbeddingRow.message_id, EmbeddingRow.first)
)
# Lock order: by id, as in every writer of several messages. A deletion of their content waits for
# this, or this for the deletion, which is then visible.
_LOCKED: Final = (
    select(MessageRow.id)
    .where(MessageRow.id.in_(bindparam("ids", expanding=True)), _SAYS_SOMETHING)
    .order_by(MessageRow.id)
    .with_for_update(read=True)
)
_EMBEDDED: Final = select(EmbeddingRow.message_id).where(
    EmbeddingRow.embedder_id == bindparam("embedder"),
    EmbeddingRow.message_id.in_(bindparam("ids", expanding=True)),
)
_NOT_EMBEDDED: Final = (
    select(MessageRow.__table__)
    .join(BranchRow, BranchRow.id == MessageRow.branch_id)
    .join(SessionRow, SessionRow.id == BranchRow.session_id)
    .join(OwnerRow, OwnerRow.id == SessionRow.owner_id)
    .where(
        OwnerRow.namespace == bindparam("namespace"),
        MessageRow.id > bindparam("after"),
        _SAYS_SOMETHING,
        ~exists().where(
            EmbeddingRow.message_id == MessageRow.id,
            EmbeddingRow.embedder_id == _EMBEDDER.scalar_subquery(),
        ),
    )
    .order_by(MessageRow.id)
    .limit(bindparam("limit"))
)


class DatabaseRetrievalStore:
    """
    The messages of one namespace, for a retriever, and their vectors.

    It satisfies `protocols.RetrievalStore`. Reads are bound to a `SearchScope`: ids give no access.
    """

    def __init__(self, database: Database, namespace: str) -> None:
        self._database = database
        self._namespace = namespace
        self._tables: dict[str, PgVectors] = {}
        self._looked: set[str] = set()

    @property
    def folder(self) -> Path | None:
        """The folder of index files beside a writable SQLite file; else None."""
        path = self._database.engine.url.database
        if self._database.is_read_only:
            return None
        if self._database.engine.dialect.name != "sqlite" or self._database.is_memory or not path:
            return None
        return Path(f"{path}-index")

    def drop_files(self) -> None:
        """
        Remove all index files, which may have vectors of deleted messages.

        For a deletion without a retriever; a running one removes its own. They are rebuilt from the
        store. Holds the same file lock as saves.

        Raises:
            IndexFileError: one cannot be removed.
        """
        folder = self.folder
        if folder is None or not folder.is_dir():
            return
        try:
            with (folder / INDEX_LOCK).open("ab") as lock:
                file_lock.lock(lock, timeout_s=_PATIENCE_S)
                for suffix in (INDEX_SUFFIX, INDEX_PART):
                    for path in folder.glob(f"*{suffix}"):
                        path.unlink(missing_ok=True)
        except OSError as error:
            raise IndexFileError(f"cannot remove index files in {folder}: {error}") from error

    def branch_ranges(self, search_scope: SearchScope) -> tuple[BranchRange, ...]:
        """Return the branches of *search_scope*, ordered by id; empty if it was deleted."""
        statement, keys = _BRANCH_RANGES, {"owner": owner_digest(search_scope.scope)}
        if search_scope.session_id is not None:
            statement = statement.where(
                SessionRow.id == check_id("session", search_scope.session_id)
            )
        rows = self._database.read(lambda connection: connection.execute(statement, keys).all())
        # A corrupt one does not affect the others.
        return tuple(_branch_range(row) for row in rows if is_whole_branch(row))

    def read(
        self, search_scope: SearchScope, branch_id: BranchId, first: int, last: int
    ) -> tuple[StoredMessage, ...]:
        """Return the branch's own messages *first* to *last*; empty outside of *search_scope*."""
        keys = {
            "owner": owner_digest(search_scope.scope),
            "branch": check_id("branch", branch_id),
            "from": check_position("first", first),
            "to": check_position("last", last),
        }
        return self._read(_within(_RANGE, search_scope), keys)

    def get(
        self, search_scope: SearchScope, message_ids: Sequence[MessageId]
    ) -> tuple[StoredMessage, ...]:
        """Return the *message_ids* that are in *search_scope* and not deleted, by id."""
        rows = self._in_chunks(
            _within(_BY_ID, search_scope), message_ids, owner=owner_digest(search_scope.scope)
        )
        return tuple(sorted(_readable(rows), key=lambda stored: stored.id))

    def embeddings(
        self, fingerprint: str, message_ids: Sequence[MessageId]
    ) -> tuple[Embedding, ...]:
        """Return the vectors of *message_ids* by that embedder, by message and position."""
        rows = self._in_chunks(_EMBEDDINGS, message_ids, fingerprint=fingerprint)
        moved = [row.message_id for row in rows if row.vector == IN_TABLE]
        in_tables: dict[tuple[int, int], bytes] = {}
        if moved and self._is_postgres:
            in_tables = self._database.read(
                lambda connection: read_vectors(connection, fingerprint, sorted(set(moved)))
            )
        return tuple(
            Embedding(
                message_id=MessageId(row.message_id),
                first=row.first,
                last=row.last,
                vector=in_tables.get((row.message_id, row.first), _vector(row)),
            )
            for row in rows
            if isinstance(row.first, int) and isinstance(row.last, int)
        )

    def add_embeddings(self, fingerprint: str, embeddings: Sequence[Embedding]) -> None:
        """
        Store vectors, except those of deleted or already embedded messages.

        All chunks of a message are stored together.

        Raises:
            InvalidInputError: a vector is not a multiple of 4 bytes (float32).
        """
        for one in embeddings:
            if len(one.vector) % _BYTES_PER_FLOAT:
                raise InvalidInputError(
                    f"the vector of message {one.message_id} has {len(one.vector)} bytes, which is "
                    "not a multiple of 4 (float32)"
                )
        if not embeddings:
            return
        table = self._tables.get(fingerprint)
        try:
            self._add(fingerprint, embeddings, table)
        except StoreError:
            if table is None:
                raise
            # The table was dropped; vectors stored here are moved once it exists again.
            del self._tables[fingerprint]
            self._add(fingerprint, embeddings, None)

    def _add(
        self, fingerprint: str, embeddings: Sequence[Embedding], table: PgVectors | None
    ) -> None:
        ids = sorted({one.message_id for one in embeddings})

        def work(connection: Connection) -> None:
            embedder = _embedder(connection, fingerprint)
            wanted: set[int] = set()
            for chunk in _chunks(ids):
                wanted.update(connection.scalars(_LOCKED, {"ids": chunk}))
                keys = {"ids": chunk, "embedder": embedder}
                wanted.difference_update(connection.scalars(_EMBEDDED, keys))
            rows = [
                {
                    "message_id": one.message_id,
                    "embedder_id": embedder,
                    "first": one.first,
                    "last": one.last,
                    "vector": one.vector,
                }
                for one in embeddings
                if one.message_id in wanted
            ]
            if rows:
                taken = [] if table is None else table.take(rows)
                # Another process may store the same; the first one is kept.
                connection.execute(insert_unless_there(connection, EmbeddingRow), rows)
                if table is not None:
                    table.insert(connection, taken)

        self._database.write(work)

    def not_embedded(
        self, fingerprint: str, *, after: MessageId, limit: int
    ) -> tuple[StoredMessage, ...]:
        """Return messages of the namespace without a vector of that embedder, by id."""
        if self._database.is_read_only:
            return ()  # their vectors could not be stored
        keys = {
            "namespace": self._namespace,
            "fingerprint": fingerprint,
            "after": after,
            "limit": limit,
        }
        return self._read(_NOT_EMBEDDED, keys)

    def table(self, fingerprint: str, dimension: int) -> PgVectors | None:
        """Return the table of that embedder's vectors; None without database vector search."""
        if not self._is_postgres or self._database.is_read_only:
            return None
        found = PgVectors.open(
            self._database,
            lambda connection: _embedder(connection, fingerprint),
            dimension,
            forgets_lost=fingerprint not in self._looked,
        )
        self._looked.add(fingerprint)
        if found is not None:
            self._tables[fingerprint] = found
        return found

    @property
    def _is_postgres(self) -> bool:
        return self._database.engine.dialect.name == "postgresql"

    def _read(self, statement: AnySelect, keys: dict[str, Any]) -> tuple[StoredMessage, ...]:
        """Decode messages, with a placeholder for each corrupt one."""
        return self._database.read(
            lambda connection: tuple(
                read_all(connection, connection.execute(statement, keys).all(), decode)
            )
        )

    def _in_chunks(self, statement: AnySelect, ids: Sequence[int], **keys: object) -> list[Any]:
        def work(connection: Connection) -> list[Any]:
            rows: list[Any] = []
            for chunk in _chunks(sorted(set(ids))):
                rows += connection.execute(statement, {**keys, "ids": chunk}).all()
            return rows

        return self._database.read(work) if ids else []


def _vector(row: AnyRow) -> bytes:
    """Return the vector of a row; an invalid one is returned as an incomparable one."""
    return row.vector if isinstance(row.vector, bytes) else _NO_VECTOR


def _branch_range(row: AnyRow) -> BranchRange:
    return BranchRange(
        session_id=SessionId(row.session_id),
        branch_id=BranchId(row.id),
        parent=None if row.parent_id is None else BranchId(row.parent_id),
        forked_at=row.forked_at,
        head=row.head,
    )


def _readable(rows: Sequence[AnyRow]) -> Iterator[StoredMessage]:
    """Omit placeholders, which have no content."""
    for row in rows:
        with suppress(DamagedRowError):
            yield decode(row)


def _within(statement: AnySelect, search_scope: SearchScope) -> AnySelect:
    if search_scope.session_id is None:
        return statement
    return statement.where(BranchRow.session_id == check_id("session", search_scope.session_id))


def _chunks(ids: Sequence[int]) -> Iterator[list[int]]:
    for start in range(0, len(ids), _CHUNK):
        yield list(ids[start : start + _CHUNK])


def _embedder(connection: Connection, fingerprint: str) -> int:
    """Return the id of an embedder's row, created on first use."""
    keys = {"fingerprint": fingerprint}
    found = connection.execute(_EMBEDDER, keys).scalar_one_or_none()
    if found is None:
        connection.execute(insert_unless_there(connection, EmbedderRow), keys)
        found = connection.execute(_EMBEDDER, keys).scalar_one()
    return int(found)
