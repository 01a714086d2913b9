"""
Several reads of one moment, in one transaction.

A read by itself costs more in beginning and ending than in looking up a few rows.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

from sqlalchemy import Connection

from agentmem.errors import StoreError
from agentmem.store.database.database import Database
from agentmem.store.prompt_log.prompt_log import PromptLog
from agentmem.store.store import Store
from agentmem.store.transcript.branches import REMEMBERED
from agentmem.store.transcript.message_codec import Decoder
from agentmem.store.transcript.messages import Messages
from agentmem.store.transcript.pins import Pins
from agentmem.store.transcript.sessions import Sessions

T = TypeVar("T")


class View:
    """
    What can be read of a store, all of it as it was at one moment.

    It is gone with the transaction that it was made for, and writes nothing.
    """

    def __init__(self, connection: Connection, decoder: Decoder) -> None:
        database = _OneTransaction(connection)
        self.sessions = Sessions(database, _now)
        self.messages = Messages(database, _now, decoder)
        self.pins = Pins(database, _now)
        self.prompt_log = PromptLog(database, _now)


def at_once(store: Store, work: Callable[[View], T]) -> T:
    """
    Run *work* on one consistent view of *store* and give its result.

    *work* may run again from the start, as in `Database.read`, and does nothing but read: models
    are called and tokens are counted afterwards.

    Raises:
        StoreError: the database could not be read, or *work* tried to write.
    """
    decoder = store.messages.decoder

    def look(connection: Connection) -> T:
        return work(View(connection.execution_options(**{REMEMBERED: {}}), decoder))

    return store.database.read(look)


class _OneTransaction(Database):
    """The part of a `Database` that reads need, inside of a transaction that is open already."""

    def __init__(self, connection: Connection) -> None:  # it opens nothing of its own
        self._connection = connection

    def read(self, work: Callable[[Connection], T]) -> T:
        return work(self._connection)

    def write(self, work: Callable[[Connection], T], *, durable: bool = True) -> T:  # noqa: ARG002 - as in `Database`
        raise StoreError(f"a snapshot is read-only: cannot run {work!r:.80}")


def _now() -> datetime:
    return datetime.now(UTC)
