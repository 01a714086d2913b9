"""
Vectors that PostgreSQL compares itself, where its extension ``vector`` is installed.

They are a copy of the embeddings, in a table for each dimension that is made when it is first
needed. No migration knows these tables; each row goes with the embedding that it was made from.
"""

import logging
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, text

from agentmem.errors import StoreError
from agentmem.machine.logs import log, nature
from agentmem.store.engine import Database
from agentmem.types import MessageId

PREFIX: Final = "embedding_vector_"
"""Of the names of these tables; the rest is the dimension."""

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
_STORED: Final = """
    SELECT e.message_id, e.first, e.vector, v.message_id IS NOT NULL AS is_there
    FROM embedding e
    LEFT JOIN {table} v
        ON (v.message_id, v.embedder_id, v.first) = (e.message_id, e.embedder_id, e.first)
    WHERE e.embedder_id = :embedder AND e.message_id = ANY(CAST(:ids AS bigint[]))
    ORDER BY e.message_id, e.first
    FOR KEY SHARE OF e
"""
_INSERT: Final = """
    INSERT INTO {table} (message_id, embedder_id, first, vector)
    VALUES (:message, :embedder, :first, CAST(:vector AS vector))
    ON CONFLICT DO NOTHING
"""
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
        # What is put into the statements is a number of ours, and no text of anybody.
        names = {"table": f"{PREFIX}{int(dimension)}", "dimension": int(dimension)}
        self._create = text(_CREATE.format(**names))
        self._stored = text(_STORED.format(**names))
        self._insert = text(_INSERT.format(**names))
        self._search = text(_SEARCH.format(**names))

    @classmethod
    def open(
        cls, database: Database, find_embedder: Callable[[Connection], int], dimension: int
    ) -> "PgVectors | None":
        """Make the table if need be; None where the database has no such thing as a vector."""
        if not 0 < dimension <= _MAX_DIMENSION:
            return None

        def work(connection: Connection) -> PgVectors:
            table = cls(database, find_embedder(connection), dimension)
            # IF NOT EXISTS alone fails where two processes make it at once.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
            connection.execute(table._create)
            return table

        try:
            if database.read(lambda connection: connection.execute(_HAS_EXTENSION).first()) is None:
                return None
            return database.write(work)
        except StoreError as error:
            line = "vectors are compared in memory, not by the database: {error}"
            log(_log, logging.WARNING, "vectors_in_memory", line, error=nature(error))
            return None

    def fill(self, message_ids: Sequence[MessageId]) -> Mapping[MessageId, bool]:
        """Take up what is embedded of *message_ids*, and tell of each such whether it has one."""

        def work(connection: Connection) -> dict[MessageId, bool]:
            keys = {"embedder": self._embedder_id, "ids": sorted(set(message_ids))}
            found: dict[MessageId, bool] = {}
            new: list[dict[str, Any]] = []
            for row in connection.execute(self._stored, keys):
                numbers = self._numbers(bytes(row.vector))
                found[row.message_id] = found.get(row.message_id, False) or bool(numbers)
                if numbers and not row.is_there:
                    new.append(
                        {
                            "message": row.message_id,
                            "embedder": self._embedder_id,
                            "first": row.first,
                            "vector": _literal(numbers),
                        }
                    )
            if new:
                connection.execute(self._insert, new)
            return found

        return self._database.write(work) if message_ids else {}

    def search(
        self, vector: bytes, message_ids: Sequence[MessageId], limit: int
    ) -> Sequence[tuple[MessageId, float]]:
        """Give the *limit* closest of *message_ids*, each with the product of its best vector."""
        keys = {
            "vector": _literal(self._numbers(vector)),
            "embedder": self._embedder_id,
            "ids": list(message_ids),
            "limit": limit,
        }
        rows = self._database.read(lambda connection: connection.execute(self._search, keys).all())
        return [(MessageId(row.message_id), float(row.score)) for row in rows]

    def _numbers(self, vector: bytes) -> tuple[float, ...]:
        """Read a vector; nothing if it is not one of this dimension that points somewhere."""
        if len(vector) != _BYTES_PER_FLOAT * self._dimension:
            return ()
        numbers = struct.unpack(f"<{self._dimension}f", vector)
        length = math.sqrt(sum(number * number for number in numbers))
        return numbers if math.isfinite(length) and length > 0 else ()


def _literal(numbers: Sequence[float]) -> str:
    """Write a vector so that each number is read as the same 32 bits again."""
    return f"[{','.join(map(repr, numbers))}]"
