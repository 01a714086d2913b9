"""
The head of a session's hash chains: one line, to keep outside of the database.

It has the number of entries of each branch, so it can be checked after the session has continued.
With a key it is an HMAC, which cannot be forged without the key.
"""

import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, bindparam, func, select

from agentmem.errors import InvalidInputError
from agentmem.store.chain.log_chain import purged_of
from agentmem.store.database.database import Database
from agentmem.store.database.hashing import digest
from agentmem.store.database.schema import (
    AnyRow,
    AssemblyRow,
    BranchRow,
    EventRow,
    OwnerRow,
    SessionRow,
    UserEventRow,
)
from agentmem.store.integrity.findings import Findings, Place
from agentmem.store.integrity.verify_branches import verify_session
from agentmem.store.integrity.verify_derived import verify_user
from agentmem.store.transcript.branches import find_branches
from agentmem.types import Discrepancy, Scope, SessionId

_PLAIN: Final = "sha256"
_KEYED: Final = "hmac-sha256"
# In the previous version, without a log, a branch has two numbers, and there is one hash.
_HEAD: Final = re.compile(
    rf"({_PLAIN}|{_KEYED}):(\d+\.\d+(?:,\d+\.\d+)*):([0-9a-f]{{64}})"
    rf"|({_PLAIN}|{_KEYED}):(\d+\.\d+\.\d+(?:,\d+\.\d+\.\d+)*)\+(\d+)"
    r":([0-9a-f]{64}):([0-9a-f]{64})"
)
_STATES: Final = (
    select(
        BranchRow.id,
        BranchRow.chain,
        BranchRow.log_chain,
        (BranchRow.head - BranchRow.forked_at).label("num_messages"),
    )
    .where(BranchRow.session_id == bindparam("session"))
    .order_by(BranchRow.id)
)
_EVENTS: Final = (
    select(EventRow.kind, EventRow.content)
    .where(EventRow.branch_id == bindparam("branch"))
    .order_by(EventRow.id)
)
_NUM_LOGGED: Final = (
    select(func.count())
    .select_from(AssemblyRow)
    .where(AssemblyRow.branch_id == bindparam("branch"))
)
_USER: Final = (
    select(
        OwnerRow.chain,
        select(func.count())
        .select_from(UserEventRow)
        .where(UserEventRow.owner_id == OwnerRow.id)
        .correlate(OwnerRow)
        .scalar_subquery()
        .label("num_events"),
    )
    .join(SessionRow, SessionRow.owner_id == OwnerRow.id)
    .where(SessionRow.id == bindparam("session"))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Head:
    """A parsed head: numbers of entries of each kind, and their hashes."""

    counts: str
    places: list[Place]
    num_logged: list[int] | None
    num_user: int
    sealed: str
    sealed_log: str


class Heads:
    """Computes the heads of sessions, and verifies stored data against them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def head(self, scope: Scope, session_id: SessionId, *, key: str | None = None) -> str:
        """
        Return the current head of a session.

        Raises:
            SessionNotFoundError: the session does not exist in this scope.
            InvalidInputError: *key* is empty.
        """
        check_key(key)

        def work(connection: Connection) -> str:
            find_branches(connection, scope, session_id)
            rows = connection.execute(_STATES, {"session": session_id}).all()
            user = connection.execute(_USER, {"session": session_id}).one()
            counts = ",".join(_counts(connection, row) for row in rows) + f"+{user.num_events}"
            links = [*(row.chain or b"" for row in rows), user.chain or b""]
            logs = [row.log_chain or b"" for row in rows]
            kind = _PLAIN if key is None else _KEYED
            main, log = _seal("head", counts, links, key), _seal("log", counts, logs, key)
            return f"{kind}:{counts}:{main}:{log}"

        return self._database.read(work)

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
        Verify the stored data of a session, and with a *head* against that.

        Raises:
            SessionNotFoundError: the session does not exist in this scope.
            InvalidInputError: *head* is not a head, or *key* is missing or of the wrong kind.
        """
        check_key(key)
        known = None if head is None else _read(head, key)

        def keep(index: int) -> frozenset[Place]:
            return frozenset(() if known is None else known.places[index : index + 1])

        def work(connection: Connection) -> tuple[Discrepancy, ...]:
            rows = find_branches(connection, scope, session_id)
            deep = integrity or known is not None
            findings = verify_session(connection, session_id, integrity=deep, keep=keep)
            if deep:
                verify_user(connection, findings, session_id, rows[0].id)
            if known is not None:
                _hold_to(known, findings, [row.id for row in rows], key)
            return (*findings.found, *findings.lost)

        return self._database.read(work)


def _counts(connection: Connection, row: AnyRow) -> str:
    """Return the numbers of messages, events and log entries of a branch."""
    keys = {"branch": row.id}
    events = connection.execute(_EVENTS, keys).all()
    num_logged = connection.execute(_NUM_LOGGED, keys).scalar_one()
    num_logged += sum(count for count, _ in purged_of(events).runs.values())
    return f"{row.num_messages}.{len(events)}.{num_logged}"


def _seal(what: str, counts: str, links: list[bytes], key: str | None) -> str:
    content = digest(what, counts, *links)
    if key is None:
        return hashlib.sha256(content).hexdigest()
    return hmac.new(key.encode(), content, hashlib.sha256).hexdigest()


def _hold_to(known: _Head, findings: Findings, branches: list[int], key: str | None) -> None:
    """Compare the recomputed links with those of a head."""
    pairs = list(zip(branches, known.places, strict=False))
    links = [findings.passed[branch].get(place, b"") for branch, place in pairs]
    is_whole = len(links) == len(known.places) and all(links)
    if known.num_logged is not None:
        links.append((findings.user[known.num_user :] or [b""])[0])
        is_whole = is_whole and bool(links[-1])
    sealed = _seal("head", known.counts, links, key)
    if not is_whole or not hmac.compare_digest(sealed, known.sealed):
        problem = f"its chain has never passed the head {known.sealed[:12]}…"
        findings.say(branches[0], None, problem)
    numbers = list(zip(branches, known.num_logged or (), strict=False))
    if not numbers or any(findings.purged[branch].has(number) for branch, number in numbers):
        return  # entries deleted by a retention have no links, but an event
    links = [findings.logged[branch].get(number, b"") for branch, number in numbers]
    sealed = _seal("log", known.counts, links, key)
    if len(links) != len(known.places) or not hmac.compare_digest(sealed, known.sealed_log):
        problem = f"its log of prompts has never passed the head {known.sealed_log[:12]}…"
        findings.say(branches[0], None, problem)


def _read(head: str, key: str | None) -> _Head:
    found = _HEAD.fullmatch(head.strip()) if isinstance(head, str) else None
    if found is None:
        raise InvalidInputError(f"{head!r:.80} is not a head: `agentmem head SESSION` prints one")
    if ((found[1] or found[4]) == _KEYED) != (key is not None):
        needs = "was made with a key: pass it" if key is None else "was made without a key"
        raise InvalidInputError(f"this head {needs}")
    numbers = [[*map(int, one.split("."))] for one in (found[2] or found[5]).split(",")]
    is_older = found[2] is not None
    return _Head(
        counts=found[2] if is_older else f"{found[5]}+{found[6]}",
        places=[(one[0], one[1]) for one in numbers],
        num_logged=None if is_older else [one[2] for one in numbers],
        num_user=int(found[6] or 0),
        sealed=found[3] or found[7],
        sealed_log=found[8] or "",
    )


def check_key(key: str | None) -> None:
    """
    Validate the key of an HMAC.

    Raises:
        InvalidInputError: it is empty, or not a string.
    """
    if key is not None and (not isinstance(key, str) or not key):
        raise InvalidInputError("a key is a text of at least one character")
