"""
Vector search in PostgreSQL with the pgvector extension.

Vectors are in one table per dimension, created on demand, and nowhere else: their embedding row has
a marker instead, and its deletion cascades. After the extension or a table was dropped, its
messages are embedded again.
"""

import logging
import math
import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from agentmem.errors import StoreError
from agentmem.machine.logs import log, nature
from agentmem.store.database.database import Database
from agentmem.types import MessageId

PREFIX: Final = "embedding_vector_"
"""Prefix of the table names, followed by the dimension."""

IN_TABLE: Final = b"\1"
"""Marker of an embedding whose vector is in such a table; its length is invalid for float32."""

_LOCK: Final = 0x6167656E74766563  # "agentvec"
_HAS_EXTENSION: Final = text("SELECT 1 FROM pg_extension WHERE extname = 'vector'")
_MAX_DIMENSION: Final = 16000
_BYTES_PER_FLOAT: Final = 4

_CREATE: Final = """
    CREATE TABLE IF NOT EXISTS {table} (
        message_id BIGINT NOT NULL,
        embedder_id BIGINT NOT NULL,
        first BIGINT NOT NULL,
        vector vector({dimension}) NOT NULL,
        PRIMARY KEY (message_id, embedder_id, first),
        FOREIGN KEY (message_id, embedder_id, first)
            REFERENCES embedding (message_id, embedder_id, first) ON DELETE CASCADE
    )
"""
_HAS_VECTORS: Final = """
    SELECT to_regclass('{table}') IS NULL OR EXISTS (
        SELECT 1 FROM pg_attribute
        WHERE attrelid = to_regclass('{table}') AND attname = 'vector' AND NOT attisdropped
    )
"""
_STORED: Final = """
    SELECT e.message_id, e.first, e.vector, v.message_id IS NOT NULL AS is_there
    FROM embedding e
    LEFT JOIN {table} v
        ON (v.message_id, v.embedder_id, v.first) = (e.message_id, e.embedder_id, e.first)
    WHERE e.embedder_id = :embedder AND e.message_id = ANY(CAST(:ids AS bigint[]))
    ORDER BY e.message_id, e.first
    FOR NO KEY UPDATE OF e
"""
_INSERT: Final = """
    INSERT INTO {table} (message_id, embedder_id, first, vector)
    VALUES (:message_id, :embedder_id, :first, CAST(:vector AS vector))
    ON CONFLICT DO NOTHING
"""
_MOVED: Final = text(
    "UPDATE embedding SET vector = :marker WHERE (message_id, embedder_id, first) = "
    "(:message_id, :embedder_id, :first)"
)
_FORGET: Final = text(
    "DELETE FROM embedding WHERE embedder_id = :embedder "
    "AND message_id = ANY(CAST(:ids AS bigint[]))"
)
_FORGET_LOST: Final = text(
    "DELETE FROM embedding WHERE embedder_id = :embedder AND vector = :marker"
)
_TABLES: Final = text(
    "SELECT c.relname FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
    "WHERE c.relname LIKE 'embedding\\_vector\\_%' AND c.relkind = 'r' AND a.attname = 'vector' "
    "AND NOT a.attisdropped AND pg_table_is_visible(c.oid)"
)
_READ: Final = """
    SELECT v.message_id, v.first, vector_send(v.vector) AS sent
    FROM {table} v JOIN embedder e ON e.id = v.embedder_id
    WHERE e.fingerprint = :fingerprint AND v.message_id = ANY(CAST(:ids AS bigint[]))
"""
_HEADER: Final = 4  # bytes of the extension's binary format before the numbers
_SEARCH: Final = """
    SELECT message_id, max(-(vector <#> CAST(:vector AS vector))) AS score
    FROM {table}
    WHERE embedder_id = :embedder AND message_id = ANY(CAST(:ids AS bigint[]))
    GROUP BY message_id
    ORDER BY score DESC, message_id
    LIMIT :limit
"""

_log = logging.getLogger(__name__)


class PgVectors:
    """The vectors of one embedder: a `protocols.VectorTable`."""

    def __init__(self, database: Database, embedder_id: int, dimension: int) -> None:
        self._database = database
        self._embedder_id = embedder_id
        self._dimension = dimension
        # Only our own numbers are formatted into the statements, no user text.
        names = {"table": f"{PREFIX}{int(dimension)}", "dimension": int(dimension)}
        self._create = text(_CREATE.format(**names))
        self._drop = text("DROP TABLE {table}".format(**names))
        self._has_vectors = text(_HAS_VECTORS.format(**names))
        self._stored = text(_STORED.format(**names))
        self._insert = text(_INSERT.format(**names))
        self._search = text(_SEARCH.format(**names))

    @classmethod
    def open(
        cls,
        database: Database,
        find_embedder: Callable[[Connection], int],
        dimension: int,
        *,
        forgets_lost: bool = True,
    ) -> "PgVectors | None":
        """Create the table if necessary; None without the extension."""
        if not 0 < dimension <= _MAX_DIMENSION:
            return None

        def work(connection: Connection) -> PgVectors:
            table = cls(database, find_embedder(connection), dimension)
            # IF NOT EXISTS alone fails in concurrent processes.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            if not connection.scalar(table._has_vectors):
                # Dropping the extension drops the column, but not the table.
                connection.execute(table._drop)
            connection.execute(table._create)
            return table

        try:
            if not has_extension(database):
                if forgets_lost:
                    forget_lost(database, find_embedder)
                return None
            return database.write(work)
        except StoreError as error:
            line = "pgvector is unavailable, searching vectors in memory: {error}"
            log(_log, logging.WARNING, "vectors_in_memory", line, error=nature(error))
            return None

    def take(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Set the marker in embedding *rows* whose vectors go to the table; return those rows."""
        taken = []
        for row in rows:
            numbers = self._numbers(row["vector"])
            if numbers:
                keys = {name: row[name] for name in ("message_id", "embedder_id", "first")}
                taken.append({**keys, "vector": _literal(numbers)})
                row["vector"] = IN_TABLE
        return taken

    def insert(self, connection: Connection, taken: Sequence[dict[str, Any]]) -> None:
        """Insert the vectors returned by `take`, after their embeddings."""
        if taken:
            connection.execute(self._insert, taken)

    def fill(self, message_ids: Sequence[MessageId]) -> Mapping[MessageId, bool]:
        """
        Load the embedded ones of *message_ids*; return whether each of these has a vector.

        A vector in neither place was lost with its table: its message is embedded again.
        """

        def work(connection: Connection) -> dict[MessageId, bool]:
            keys = {"embedder": self._embedder_id, "ids": sorted(set(message_ids))}
            found: dict[MessageId, bool] = {}
            lost: set[MessageId] = set()
            new: list[dict[str, Any]] = []
            for row in connection.execute(self._stored, keys):
                stored = bytes(row.vector)
                if stored == IN_TABLE and not row.is_there:
                    lost.add(row.message_id)
                named = {"message_id": row.message_id, "embedder_id": self._embedder_id}
                new.append({**named, "first": row.first, "vector": stored})
                has_vector = stored == IN_TABLE or bool(self._numbers(stored))
                found[row.message_id] = found.get(row.message_id, False) or has_vector
            taken = self.take(new)
            self.insert(connection, taken)
            if taken:
                connection.execute(_MOVED, [{**one, "marker": IN_TABLE} for one in taken])
            if lost:
                connection.execute(_FORGET, {**keys, "ids": sorted(lost)})
            return {one: has_vector for one, has_vector in found.items() if one not in lost}

        return self._database.write(work) if message_ids else {}

    def search(
        self, vector: bytes, message_ids: Sequence[MessageId], limit: int
    ) -> Sequence[tuple[MessageId, float]]:
        """Return the *limit* closest *message_ids*, each with its best inner product."""
        keys = {
            "vector": _literal(self._numbers(vector)),
            "embedder": self._embedder_id,
            "ids": list(message_ids),
            "limit": limit,
        }
        rows = self._database.read(lambda connection: connection.execute(self._search, keys).all())
        return [(MessageId(row.message_id), float(row.score)) for row in rows]

    def _numbers(self, vector: bytes) -> tuple[float, ...]:
        """Decode a vector; empty if it is zero or of another dimension."""
        if len(vector) != _BYTES_PER_FLOAT * self._dimension:
            return ()
        numbers = struct.unpack(f"<{self._dimension}f", vector)
        length = math.sqrt(sum(number * number for number in numbers))
        return numbers if math.isfinite(length) and length > 0 else ()


def read_vectors(
    connection: Connection, fingerprint: str, message_ids: Sequence[int]
) -> dict[tuple[int, int], bytes]:
    """Return vectors of *message_ids* from the tables, by message and position, as float32."""
    found = {}
    keys = {"fingerprint": fingerprint, "ids": list(message_ids)}
    for name in vector_tables(connection):
        for row in connection.execute(text(_READ.format(table=name)), keys):
            found[row.message_id, row.first] = as_stored(bytes(row.sent))
    return found


def vector_tables(connection: Connection) -> list[str]:
    """Return the tables with vectors; none after the extension was dropped."""
    return sorted(connection.scalars(_TABLES))


def as_stored(sent: bytes) -> bytes:
    """Convert the output of ``vector_send`` to a vector as stored in embeddings."""
    numbers = array("f", sent[_HEADER:])
    if sys.byteorder == "little":
        numbers.byteswap()
    return struct.pack(f"<{len(numbers)}f", *numbers)


def forget_lost(database: Database, find_embedder: Callable[[Connection], int]) -> None:
    """Schedule messages of dropped tables to be embedded again."""

    def work(connection: Connection) -> None:
        keys = {"embedder": find_embedder(connection), "marker": IN_TABLE}
        connection.execute(_FORGET_LOST, keys)

    database.write(work)


def has_extension(database: Database) -> bool:
    """Whether the database has the extension."""
    return database.read(lambda connection: connection.execute(_HAS_EXTENSION).first()) is not None


def _literal(numbers: Sequence[float]) -> str:
    """Format a vector so that each number round-trips exactly."""
    return f"[{','.join(map(repr, numbers))}]"
