"""
The head of a session's hash chains: one line, to be kept where a writer of the database is not.

It names how many entries each branch had, so it still is checked when the session has gone on.
With a key it is an HMAC, and who has no key can make none.
"""

import hashlib
import hmac
import re
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from agentmem.errors import InvalidInputError
from agentmem.store.branches import find_branches
from agentmem.store.chain import digest
from agentmem.store.engine import Database
from agentmem.store.schema import BranchRow
from agentmem.store.schema_derived import EventRow
from agentmem.store.verifying import Place, verify_session
from agentmem.types import BranchId, Discrepancy, Scope, SessionId

_PLAIN: Final = "sha256"
_KEYED: Final = "hmac-sha256"
_HEAD: Final = re.compile(rf"({_PLAIN}|{_KEYED}):(\d+\.\d+(?:,\d+\.\d+)*):([0-9a-f]{{64}})")
_STATES: Final = (
    select(
        BranchRow.id,
        BranchRow.chain,
        (BranchRow.head - BranchRow.forked_at).label("num_messages"),
        select(func.count())
        .select_from(EventRow)
        .where(EventRow.branch_id == BranchRow.id)
        .correlate(BranchRow)
        .scalar_subquery()
        .label("num_events"),
    )
    .where(BranchRow.session_id == bindparam("session"))
    .order_by(BranchRow.id)
)


class Heads:
    """Reads the heads of sessions, and holds what is stored against them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def head(self, scope: Scope, session_id: SessionId, *, key: str | None = None) -> str:
        """
        Return the head of a session as it is now.

        Raises:
            SessionNotFoundError: no such session of this scope.
            InvalidInputError: *key* is empty.
        """
        _check_key(key)

        def work(connection: Connection) -> tuple[list[Place], list[bytes]]:
            find_branches(connection, scope, session_id)
            rows = connection.execute(_STATES, {"session": session_id}).all()
            places = [(int(row.num_messages), int(row.num_events)) for row in rows]
            return places, [row.chain or b"" for row in rows]

        return _written(*self._database.read(work), key)

    def verify(
        self,
        scope: Scope,
        session_id: SessionId,
        *,
        integrity: bool = False,
        head: str | None = None,
        key: str | None = None,
    ) -> tuple[Discrepancy, ...]:
        """
        Hold what is stored of a session against itself, and with a *head* against that.

        Raises:
            SessionNotFoundError: no such session of this scope.
            InvalidInputError: *head* is no head, or *key* is missing or not the kind that it takes.
        """
        _check_key(key)
        places = [] if head is None else _places(head, key)

        def keep(index: int) -> frozenset[Place]:
            return frozenset(places[index : index + 1])

        def work(connection: Connection) -> tuple[Discrepancy, ...]:
            rows = find_branches(connection, scope, session_id)
            deep = integrity or head is not None
            findings = verify_session(connection, session_id, integrity=deep, keep=keep)
            if head is not None:
                links = [
                    findings.passed[row.id].get(place, b"")
                    for row, place in zip(rows, places, strict=False)
                ]
                known = len(links) == len(places) and all(links)
                if not known or not hmac.compare_digest(_written(places, links, key), head):
                    problem = f"its chain has never passed the head {head.rpartition(':')[2][:12]}…"
                    findings.say(BranchId(rows[0].id), None, problem)
            return (*findings.found, *findings.lost)

        return self._database.read(work)


def _written(places: list[Place], links: list[bytes], key: str | None) -> str:
    counts = ",".join(f"{messages}.{events}" for messages, events in places)
    content = digest("head", counts, *links)
    if key is None:
        return f"{_PLAIN}:{counts}:{hashlib.sha256(content).hexdigest()}"
    return f"{_KEYED}:{counts}:{hmac.new(key.encode(), content, hashlib.sha256).hexdigest()}"


def _places(head: str, key: str | None) -> list[Place]:
    found = _HEAD.fullmatch(head.strip()) if isinstance(head, str) else None
    if found is None:
        raise InvalidInputError(f"{head!r:.80} is no head: `agentmem head SESSION` prints one")
    if (found[1] == _KEYED) != (key is not None):
        needs = "was made with a key: give it" if key is None else "was made without a key"
        raise InvalidInputError(f"this head {needs}")
    pairs = (pair.split(".") for pair in found[2].split(","))
    return [(int(messages), int(events)) for messages, events in pairs]


def _check_key(key: str | None) -> None:
    if key is not None and (not isinstance(key, str) or not key):
        raise InvalidInputError("a key is a text of at least one character")
