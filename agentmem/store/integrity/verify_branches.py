"""
Verify stored branches: positions, roles, forks, contents, and the hash chain.

Read-only, in one transaction. Problems are reported, never repaired.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, func, select

from agentmem.errors import DamagedRowError, StoreError
from agentmem.store.chain.branch_chain import (
    MESSAGE_COLUMNS,
    changes_of,
    event_digest,
    genesis,
    message_digest,
)
from agentmem.store.chain.log_chain import purged_of
from agentmem.store.chain.pin_chain import EVENT as PINS_EVENT
from agentmem.store.chain.replacement_chain import EVENT as REPLACEMENTS_EVENT
from agentmem.store.chain.replacement_chain import REPLACEMENTS
from agentmem.store.chain.summary_chain import EVENT as SUMMARIES_EVENT
from agentmem.store.chain.summary_chain import take_changes
from agentmem.store.database.damage import UNREADABLE, check_row
from agentmem.store.database.hashing import follow
from agentmem.store.database.schema import (
    AnyRow,
    BranchRow,
    EventRow,
    MessageRow,
    OwnerRow,
    SessionRow,
    SummaryRow,
    ToolCallRow,
)
from agentmem.store.integrity.findings import Findings, Keep, Place
from agentmem.store.integrity.verify_derived import (
    verify_log,
    verify_pins,
    verify_replacements,
    verify_summaries,
)
from agentmem.store.lifecycle.deletion import DELETED_EVENT
from agentmem.store.lifecycle.losses import LOST, NEXT, content_of, is_marked, link_of
from agentmem.store.transcript.message_codec import decode
from agentmem.types import Origin

_FACTS: Final = (
    select(OwnerRow.namespace, OwnerRow.user, SessionRow.key, SessionRow.created_at)
    .join(SessionRow, SessionRow.owner_id == OwnerRow.id)
    .where(SessionRow.id == bindparam("session"))
)
_BRANCHES: Final = (
    select(BranchRow.__table__)
    .where(BranchRow.session_id == bindparam("session"))
    .order_by(BranchRow.id)
)
_MESSAGES: Final = (
    select(MessageRow.__table__)
    .where(MessageRow.branch_id == bindparam("branch"))
    .order_by(MessageRow.position, MessageRow.id)
    .execution_options(yield_per=500)
)
_EVENTS: Final = (
    select(EventRow.__table__)
    .where(EventRow.branch_id == bindparam("branch"))
    .order_by(EventRow.id)
)
_NUM_OPEN: Final = (
    select(func.count())
    .select_from(ToolCallRow)
    .where(ToolCallRow.branch_id == bindparam("branch"), ToolCallRow.answered_at.is_(None))
)
_SUMMARIES: Final = select(SummaryRow.key, SummaryRow.first, SummaryRow.last).where(
    SummaryRow.branch_id == bindparam("branch")
)
_ANY: Final = "*"
"""Marker in place of the hash of an entry: none to compare."""


def verify_session(  # noqa: PLR0913 - how deep to look
    connection: Connection,
    session_id: int,
    *,
    integrity: bool,
    named: Mapping[str, str] | None = None,
    with_made: bool = True,
    keep: Keep = lambda _index: frozenset(),
) -> Findings:
    """
    Verify the rows of a session, and with *integrity* its hash chain.

    Args:
        connection: of a read.
        session_id: the session, which exists.
        integrity: whether to verify the chain from its beginning, with events and pins.
        named: the original namespace and user of the chain, if not those of the session.
        with_made: whether the chain includes prompt log and summaries; old ones do not.
        keep: the links to return, per branch, by its index in the session.
    """
    facts = connection.execute(_FACTS, {"session": session_id}).one()
    check_row("session", facts)
    check_row("owner", facts)
    findings = Findings()
    branches = connection.execute(_BRANCHES, {"session": session_id}).all()
    by_id = {branch.id: branch for branch in branches}
    for index, branch in enumerate(branches):
        _check_fork(findings, branch, by_id)
        checker = _BranchCheck(connection, findings, branch, keep(index))
        begin = _genesis(findings, facts, named, branch, by_id)
        checker.run(begin, integrity=integrity)
        if integrity and with_made:
            verify_log(connection, findings, branch, begin)
            verify_summaries(connection, findings, branch.id)
            verify_replacements(connection, findings, branch.id)
    if integrity:
        verify_pins(connection, findings, session_id, [branch.id for branch in branches])
    return findings


def _genesis(
    findings: Findings,
    facts: AnyRow,
    named: Mapping[str, str] | None,
    branch: AnyRow,
    by_id: Mapping[int, AnyRow],
) -> bytes:
    holder, position, link = by_id.get(branch.parent_id), branch.forked_at, None
    while holder is not None and position > 0:
        if position > holder.forked_at:
            link = findings.at_position.get((holder.id, position))
            break
        holder = by_id.get(holder.parent_id)
    return genesis({**facts._asdict(), **(named or {})}, branch._asdict(), link)


def _check_fork(findings: Findings, branch: AnyRow, by_id: Mapping[int, AnyRow]) -> None:
    if branch.parent_id is None:
        if branch.forked_at:
            findings.say(branch.id, None, f"main begins at position {branch.forked_at}")
        return
    parent = by_id.get(branch.parent_id)
    if parent is None:
        findings.say(branch.id, None, "its parent is a branch of another session")
    elif branch.forked_at > parent.head:
        problem = f"forked at {branch.forked_at}, and its parent has {parent.head} messages"
        findings.say(branch.id, None, problem)


class _BranchCheck:
    """Iterates over the messages and events of one branch in order."""

    def __init__(
        self,
        connection: Connection,
        findings: Findings,
        branch: AnyRow,
        keep: frozenset[Place],
    ) -> None:
        self._connection = connection
        self._findings = findings
        self._branch = branch
        self._keep = keep
        self._num_events = 0
        self._bridge: str | None = None
        self._passed: dict[Place, bytes] = {}
        findings.passed[branch.id] = self._passed

    def run(self, begin: bytes, *, integrity: bool) -> None:
        keys = {"branch": self._branch.id}
        events = self._readable(self._connection.execute(_EVENTS, keys).all())
        self._findings.purged[self._branch.id] = purged_of(events)
        left = _deletions(events)
        waiting = iter(events)
        event = next(waiting, None)
        link: bytes | None = begin
        expected = self._branch.forked_at + 1
        self._pass(0, begin)
        for row in self._connection.execute(_MESSAGES, keys):
            if not isinstance(row.position, int):
                self._say(None, f"a message is at {row.position!r:.50}, which is not a position")
                continue
            while event is not None and event.at < row.position:
                link = self._event(event, link, expected, integrity=integrity)
                event = next(waiting, None)
            if row.position != expected:
                gap = f"positions {expected} to {row.position - 1} are missing"
                self._say(row.position, gap if row.position > expected else "is there twice")
            # Later entries are verified against the stored link: one problem is one finding.
            link = self._message(row, link, left, integrity=integrity)
            self._findings.at_position[self._branch.id, row.position] = link
            expected = row.position + 1
            self._pass(row.position - self._branch.forked_at, link)
        while event is not None:
            link = self._event(event, link, expected, integrity=integrity)
            event = next(waiting, None)
        self._end(link, expected - 1, integrity=integrity)

    def _end(self, link: bytes | None, newest: int, *, integrity: bool) -> None:
        branch, keys = self._branch, {"branch": self._branch.id}
        if newest != branch.head:
            self._say(None, f"there are messages up to {newest}, and it counts {branch.head}")
        if integrity and link != branch.chain and self._bridge is None:
            self._say(None, "its newest entry is not the one that its chain ends with")
        num_open = self._connection.execute(_NUM_OPEN, keys).scalar_one()
        if num_open != branch.open_calls:
            self._say(None, f"{num_open} calls are open, and it counts {branch.open_calls}")
        for row in self._connection.execute(_SUMMARIES, keys):
            is_range = isinstance(row.first, int) and isinstance(row.last, int)
            if not is_range or not 1 <= row.first <= row.last <= branch.head:
                self._say(None, f"a summary covers {row.first} to {row.last}, which do not exist")
        for row in self._connection.execute(REPLACEMENTS, keys):
            are_positions = isinstance(row.old, int) and isinstance(row.new, int)
            if not are_positions or not 1 <= row.old < row.new <= branch.head:
                problem = f"message {row.new} replaces message {row.old}, and one does not exist"
                self._say(None, problem)

    def _message(
        self,
        row: AnyRow,
        link: bytes | None,
        deletions: Mapping[int, Mapping[str, Any]],
        *,
        integrity: bool,
    ) -> bytes | None:
        try:
            decode(row)
        except StoreError as error:
            self._say(row.position, f"cannot be read: {error}")
        content, stored = content_of(row), link_of(row)
        deletion = deletions.get(row.position, {})
        if row.sealed is not None:
            columns = {name: getattr(row, name) for name in MESSAGE_COLUMNS}
            is_left = deletion.get("left") == _digest(columns)
            if integrity and not (is_left and row.origin == Origin.DELETED):
                self._say(row.position, "was not deleted, or is not what its deletion left")
        if self._follows(link, content or b"", stored):
            return stored
        if row.sealed is not None and deletion.get(LOST) is True:
            # Its deletion event says that its content was unreadable.
            self._bridge = str(deletion.get(NEXT, "")) if stored is None else None
        elif is_marked(row):
            if stored is None:
                self._bridge = _ANY
                said = "is lost with its link, so that later messages cannot be verified"
                self._findings.lose(self._branch.id, row.position, said)
        elif link is not None or integrity:
            self._say(row.position, "is not what was stored here, or does not follow what was")
        return stored

    def _follows(self, link: bytes | None, content: bytes, stored: bytes | None) -> bool:
        """Whether an entry matches the chain, also after a lost one."""
        bridge, self._bridge = self._bridge, None
        if bridge is not None and stored is not None:
            return bridge in {_ANY, content.hex()}
        return follow(link, content) == stored

    def _event(
        self, event: AnyRow, link: bytes | None, _expected: int, *, integrity: bool
    ) -> bytes | None:
        self._num_events += 1
        content, stored = event_digest(event.at, event.kind, event.content), link_of(event)
        if not self._follows(link, content, stored) and integrity:
            self._say(None, f"event {self._num_events} ({event.kind}) does not follow what was")
        with suppress(*UNREADABLE):
            self._take_changes(event)
        self._pass(event.at - self._branch.forked_at, stored)
        return stored

    def _readable(self, events: Sequence[AnyRow]) -> list[AnyRow]:
        """Omit corrupt events; the chain does not continue without them."""
        found = []
        for number, event in enumerate(events, 1):
            try:
                check_row("event", event)
                found.append(event)
            except DamagedRowError as error:
                self._say(None, f"event {number} cannot be read: {error}")
        return found

    def _take_changes(self, event: AnyRow) -> None:
        if event.kind == PINS_EVENT:
            added, removed = changes_of(event.content)
            place = (self._branch.id, event.at)
            self._findings.pins |= dict.fromkeys(added, place)
            for one in removed:
                self._findings.pins.pop(one, None)
        elif event.kind == SUMMARIES_EVENT:
            there = self._findings.summaries.setdefault(self._branch.id, {})
            take_changes(there, _content(event))
        elif event.kind == REPLACEMENTS_EVENT:
            added, removed = changes_of(event.content)
            known = self._findings.replacements.setdefault(self._branch.id, set())
            known.difference_update(removed)
            known.update(added)

    def _pass(self, num_messages: int, link: bytes | None) -> None:
        place = (num_messages, self._num_events)
        if link is not None and place in self._keep:
            self._passed[place] = link

    def _say(self, position: int | None, problem: str) -> None:
        self._findings.say(self._branch.id, position, problem)


def _deletions(events: Any) -> dict[int, dict[str, Any]]:
    """Return the last deletion event of each position."""
    contents: Iterator[dict[str, Any]] = (
        _content(event) for event in events if event.kind == DELETED_EVENT
    )
    return {one["position"]: one for one in contents if isinstance(one.get("position"), int)}


def _digest(columns: Mapping[str, Any]) -> str | None:
    with suppress(*UNREADABLE):
        return message_digest(None, columns).hex()
    return None


def _content(event: AnyRow) -> dict[str, Any]:
    try:
        value = json.loads(event.content)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
