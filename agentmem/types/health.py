"""Whether a memory works at this moment, as values for probes and dashboards."""

from dataclasses import dataclass, field

from agentmem.errors import AgentMemError
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth(Checked):
    """Whether the database answers, and how its connections are used."""

    place: str
    """Its URL, without the password."""

    is_reachable: bool = False
    is_writable: bool | None = None
    """None where nothing is written by choice, and where it was not found out."""

    revision: str | None = None
    """Of its tables, as far as it is known."""

    expected: str
    """The revision that this version makes; a later one may do (see ``migrations/README.md``)."""

    is_compatible: bool = False
    is_closed: bool = False
    pool_size: int = 0
    """Connections that are kept open; 0 where none is kept."""

    pool_checked_out: int = 0
    pool_overflow: int = 0
    """Connections in use beyond *pool_size*."""

    seconds: float = 0.0
    """How long the round trip took, or was waited for."""

    error: AgentMemError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexHealth(Checked):
    """How the background work goes that makes messages found by their meaning."""

    is_idle: bool = True
    """Whether nothing is left to do; what has failed and is to be tried again is left to do."""

    lag_s: float = 0.0
    """How long the oldest work that is still to be done has waited; 0 where there is none."""

    num_set_aside: int = 0
    """Messages that could not be embedded, and are tried again by the next process."""

    is_closed: bool = False
    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionHealth(Checked):
    """How compaction in the background goes, over all branches."""

    num_waiting: int = 0
    is_running: bool = False
    num_failed: int = 0
    """Branches whose last try has failed; their prompts are compacted when the window is full."""

    last_error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelHealth(Checked):
    """
    What a model does, read without waiting for its step: the numbers may be a step apart.

    All but *name* is None for a model that cannot say it.
    """

    name: str
    is_closed: bool | None = None
    num_running: int | None = None
    """Requests that hold KV blocks."""

    num_waiting: int | None = None
    kv_free: int | None = None
    """KV blocks that nothing is in."""

    kv_cached: int | None = None
    """KV blocks that only the prefix cache holds."""

    kv_in_use: int | None = None
    kv_total: int | None = None
    kv_bytes: int | None = None
    error: AgentMemError | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health(Checked):
    """
    Whether a memory works at this moment, and what it is made of.

    An embedder or a compaction in the background that fails is shown and no reason to take a
    process out of service: it goes on by words alone, and compacts as a window is full.
    """

    database: DatabaseHealth
    compaction: CompactionHealth = CompactionHealth()
    index: IndexHealth | None = None
    """None without a retriever, and where it cannot say it."""

    model: ModelHealth | None = None
    seconds: float = 0.0
    """How long the check took."""

    @property
    def is_ok(self) -> bool:
        """Whether it can serve: the database works, and so does the model where there is one."""
        database, model = self.database, self.model
        is_served = model is None or (not model.is_closed and model.error is None)
        return database.is_reachable and database.error is None and is_served
