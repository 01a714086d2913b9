"""How commands open a database: read-only, to change an existing one, or to create one."""

import time
from typing import Final

from agentmem.config import DatabaseConfig
from agentmem.errors import (
    AgentMemError,
    DatabaseBusyError,
    DatabaseUrlError,
    InvalidInputError,
    SchemaVersionError,
    StoreError,
)
from agentmem.memory import Memory
from agentmem.memory.health_check import within
from agentmem.protocols import Retriever
from agentmem.store import head
from agentmem.store.database.urls import parse_url, place_of
from agentmem.types import DatabaseHealth, Health

_EXISTING = DatabaseConfig(create=False)
_GRACE_S: Final = 0.5


def open_to_read(url: str, namespace: str) -> Memory:
    """Open an existing database read-only, also a write-protected one."""
    return Memory.open(url, namespace=namespace, read_only=True)


def open_to_change(url: str, namespace: str) -> Memory:
    """Open an existing database."""
    return Memory.open(url, namespace=namespace, database=_EXISTING)


def probe(url: str, *, timeout_s: float, read_only: bool) -> Health:
    """Return the health of the database, also where it cannot be opened or times out."""
    started = time.monotonic()
    place = place_of(parse_url(url))
    if not timeout_s >= 0:
        raise InvalidInputError(f"--timeout takes seconds, 0 or more, got {timeout_s:g}")

    def opened() -> Health:
        config = None if read_only else _EXISTING
        memory = Memory.open(url, database=config, read_only=read_only)
        # Not closed: that would wait for a hanging round trip, and the process ends here.
        return memory.health(timeout_s=max(0.0, timeout_s - (time.monotonic() - started)))

    found: AgentMemError | None
    try:
        health = within(timeout_s + _GRACE_S, opened)
    except AgentMemError as error:
        health, found = None, error
    else:
        found = DatabaseBusyError(f"{place} could not be opened within {timeout_s:g} s")
    if health is not None:
        return health
    passed = time.monotonic() - started
    revision = found.found if isinstance(found, SchemaVersionError) else None
    database = DatabaseHealth(
        place=place,
        is_reachable=isinstance(found, SchemaVersionError),
        revision=revision,
        expected=head(),
        seconds=passed,
        error=found,
    )
    return Health(database=database, seconds=passed)


def open_to_search(url: str, namespace: str, retriever: Retriever) -> Memory:
    """Open an existing database to search it; new vectors are stored unless it is read-only."""
    try:
        return Memory.open(url, namespace=namespace, retriever=retriever, database=_EXISTING)
    except (DatabaseUrlError, SchemaVersionError):
        raise
    except StoreError:
        return Memory.open(url, namespace=namespace, retriever=retriever, read_only=True)
