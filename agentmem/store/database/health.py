"""
Health check of the database: one round trip, in a thread, with a timeout.

While a database hangs there is one such thread per store, however often it is probed.
"""

import threading
import time

from sqlalchemy import Connection, select
from sqlalchemy.pool import QueuePool

from agentmem.errors import AgentMemError, DatabaseBusyError, SchemaVersionError, StoreError
from agentmem.machine.forks import renew_in_child
from agentmem.store.database.compatibility import head, stamped
from agentmem.store.database.database import Database
from agentmem.store.database.schema import CompatibilityRow
from agentmem.types import DatabaseHealth

# On PostgreSQL it checks that this role may write here; SQLite has locked the file already.
_WRITE = select(CompatibilityRow.oldest).with_for_update(skip_locked=True)


class _RoundTrip:
    """The progress of one probe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.is_reachable = False
        self.is_writable: bool | None = None
        self.revision: str | None = None
        self.error: AgentMemError | None = None
        self.is_done = threading.Event()

    def run(self) -> None:
        try:
            self.revision = self._database.read(stamped)
            self.is_reachable = True
            if not self._database.is_read_only:
                self.is_writable = False
                self._database.write(_touch, durable=False)
                self.is_writable = True
        except SchemaVersionError as error:
            self.is_reachable, self.revision, self.error = True, error.found, error
        except AgentMemError as error:
            self.error = error
        except Exception as error:  # noqa: BLE001 - a probe reports, whatever a driver raises
            self.error = StoreError(f"{self._database.place}: {type(error).__name__}")
        finally:
            self.is_done.set()


class Probe:
    """Probes one database. Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.begin_anew()
        renew_in_child(self)

    def begin_anew(self) -> None:
        """Drop the running probe: a fork does not have its thread."""
        self._lock = threading.Lock()
        self._trip: _RoundTrip | None = None

    def check(self, timeout_s: float) -> DatabaseHealth:
        """Return the health of the database, after *timeout_s* seconds at most."""
        started = time.monotonic()
        database = self._database
        if database.is_closed:
            error = StoreError("this store is closed: open it again")
            return DatabaseHealth(
                place=database.place, expected=head(), is_closed=True, error=error
            )
        trip = self._begun()
        is_done = trip.is_done.wait(timeout_s)
        seconds = time.monotonic() - started
        found_error = trip.error
        if not is_done:
            what = "took no write" if trip.is_reachable else "did not answer"
            found_error = DatabaseBusyError(
                f"{database.place} {what} within {timeout_s:g} s: look for a lock that is held, "
                "for connections that are all in use, or whether the server hangs"
            )
        is_refused = isinstance(found_error, SchemaVersionError)
        pool = database.engine.pool
        kept = pool if isinstance(pool, QueuePool) else None
        return DatabaseHealth(
            place=database.place,
            is_reachable=trip.is_reachable,
            is_writable=trip.is_writable,
            revision=trip.revision,
            expected=head(),
            is_compatible=trip.is_reachable and not is_refused,
            pool_size=kept.size() if kept else 0,
            pool_checked_out=kept.checkedout() if kept else 0,
            pool_overflow=max(0, kept.overflow()) if kept else 0,
            seconds=seconds,
            error=found_error,
        )

    def _begun(self) -> _RoundTrip:
        """Return the running probe, or start one."""
        with self._lock:
            if self._trip is None or self._trip.is_done.is_set():
                self._trip = _RoundTrip(self._database)
                threading.Thread(target=self._trip.run, name="agentmem-health", daemon=True).start()
            return self._trip


def _touch(connection: Connection) -> None:
    connection.execute(_WRITE).all()
