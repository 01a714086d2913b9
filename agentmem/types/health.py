"""Health of a memory, as values for probes and dashboards."""

from dataclasses import dataclass, field

from agentmem.errors import AgentMemError
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth(Checked):
    """Whether the database responds, and the use of its connection pool."""

    place: str
    """Its URL, without the password."""

    is_reachable: bool = False
    is_writable: bool | None = None
    """None for a read-only memory, and where it is unknown."""

    revision: str | None = None
    """Schema revision of the database, where known."""

    expected: str
    """Schema revision of this version; later ones may work too (see ``migrations/README.md``)."""

    is_compatible: bool = False
    is_closed: bool = False
    pool_size: int = 0
    """Connections that are kept open; 0 without a pool."""

    pool_checked_out: int = 0
    pool_overflow: int = 0
    """Connections in use beyond *pool_size*."""

    seconds: float = 0.0
    """Seconds of the round trip, or until the timeout."""

    error: AgentMemError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHealth(Checked):
    """Health of the background embedding of messages."""

    is_idle: bool = True
    """Whether no work is left; failed work that will be retried is left."""

    lag_s: float = 0.0
    """Seconds that the oldest pending work has waited; 0 without any."""

    num_set_aside: int = 0
    """Messages that failed to embed, which the next process retries."""

    is_closed: bool = False
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionHealth(Checked):
    """Health of background compaction, over all branches."""

    num_waiting: int = 0
    is_running: bool = False
    num_failed: int = 0
    """Branches whose last attempt failed; they are compacted when the window is full."""

    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHealth(Checked):
    """
    Load of a model, read without waiting for its step: the numbers may be from different steps.

    All but *name* is None for a model that does not report it.
    """

    name: str
    is_closed: bool | None = None
    num_running: int | None = None
    """Requests that hold KV blocks."""

    num_waiting: int | None = None
    kv_free: int | None = None
    """Free KV blocks."""

    kv_cached: int | None = None
    """KV blocks referenced by the prefix cache only."""

    kv_in_use: int | None = None
    kv_total: int | None = None
    kv_bytes: int | None = None
    error: AgentMemError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Checked):
    """
    Health of a memory and of its parts.

    A failing embedder or background compaction is reported, but does not make the memory unhealthy:
    it falls back to lexical search, and compacts when a window is full.
    """

    database: DatabaseHealth
    compaction: CompactionHealth = CompactionHealth()
    index: IndexHealth | None = None
    """None without a retriever, and where it does not report its health."""

    model: ModelHealth | None = None
    seconds: float = 0.0
    """Seconds that the check took."""

    @property
    def is_ok(self) -> bool:
        """Readiness: whether the database works, and the model if there is one."""
        database, model = self.database, self.model
        is_served = model is None or (not model.is_closed and model.error is None)
        return database.is_reachable and database.error is None and is_served
