"""Verify derived data against the chains: prompt log, summaries, replacements, pins."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, and_, bindparam, func, or_, select

from agentmem.store.chain.log_chain import Purged, entries_of
from agentmem.store.chain.pin_chain import VERSIONS, digest_of
from agentmem.store.chain.replacement_chain import REPLACEMENTS, sealed_replacement
from agentmem.store.chain.summary_chain import sealed
from agentmem.store.chain.user_chain import EVENTS, follow_user, user_genesis
from agentmem.store.database.hashing import follow
from agentmem.store.database.schema import (
    AnyRow,
    OwnerRow,
    PinRow,
    PinVersionRow,
    SessionRow,
    SummaryRow,
)
from agentmem.store.integrity.findings import Findings
from agentmem.types import PinScope

_SUMMARIES: Final = (
    select(SummaryRow.__table__)
    .where(SummaryRow.branch_id == bindparam("branch"))
    .order_by(SummaryRow.first, SummaryRow.key)
)
_NEWEST: Final = (
    select(func.max(PinVersionRow.version))
    .where(PinVersionRow.pin_id == PinRow.id)
    .correlate(PinRow)
    .scalar_subquery()
)
_PLACED: Final = VERSIONS.add_columns(
    PinRow.target_id,
    PinRow.owner_id,
    PinRow.session_id,
    PinRow.version.label("current"),
    _NEWEST.label("newest"),
)
# By either foreign key: prompts use the one, deletions and exports the other.
_OF_SESSION: Final = _PLACED.where(
    PinRow.scope != PinScope.USER.value,
    or_(
        PinRow.session_id == bindparam("session"),
        and_(
            PinRow.scope == PinScope.SESSION.value,
            PinRow.target_id == bindparam("session"),
        ),
        and_(
            PinRow.scope == PinScope.BRANCH.value,
            PinRow.target_id.in_(bindparam("branches", expanding=True)),
        ),
    ),
)
_OF_USER: Final = _PLACED.where(
    PinRow.scope == PinScope.USER.value,
    or_(PinRow.owner_id == bindparam("owner"), PinRow.target_id == bindparam("owner")),
)
_OWNER: Final = (
    select(OwnerRow.id, OwnerRow.namespace, OwnerRow.user, OwnerRow.chain)
    .join(SessionRow, SessionRow.owner_id == OwnerRow.id)
    .where(SessionRow.id == bindparam("session"))
)


def verify_log(connection: Connection, findings: Findings, branch: AnyRow, begin: bytes) -> None:
    """Verify the log of a branch from its beginning, across deletions by retentions."""
    purged = findings.purged.get(branch.id, Purged())
    number, link = purged.skip(0, begin)
    passed = findings.logged[branch.id] = {0: begin}
    for entry in entries_of(connection, branch.id):
        number += 1
        if entry.content is None or follow(link, entry.content) != entry.link:
            problem = f"prompt {entry.id} is not what was logged here, or does not follow what was"
            findings.say(branch.id, None, problem, prompt=entry.id)
        if entry.named_anew != purged.named_anew.get(number):
            problem = f"prompt {entry.id} has other records of a purge than were written"
            findings.say(branch.id, None, problem, prompt=entry.id)
        # From here on what follows is held against what is stored, so that one is one.
        link = entry.link if isinstance(entry.link, bytes) else b""
        passed[number] = link
        number, link = purged.skip(number, link)
        passed[number] = link or b""
    if link != branch.log_chain:
        findings.say(branch.id, None, "its newest prompt is not the one that its log ends with")


def verify_summaries(connection: Connection, findings: Findings, branch_id: int) -> None:
    """Verify the summaries of a branch against its events."""
    expected = findings.summaries.get(branch_id, {})
    rows = connection.execute(_SUMMARIES, {"branch": branch_id})
    there = {row.key: sealed(row._asdict()) for row in rows}
    for key, (first, last, text) in there.items():
        if expected.get(key, ())[2:] != (text,):
            problem = f"the summary of {first} to {last} is not what was written"
            findings.say(branch_id, None, problem)
    for key, (first, last, _) in expected.items():
        if key not in there:
            problem = f"the summary of {first} to {last} is missing or was changed"
            findings.say(branch_id, None, problem)


def verify_replacements(connection: Connection, findings: Findings, branch_id: int) -> None:
    """Verify the replacements of a branch against its events."""
    expected = findings.replacements.get(branch_id, set())
    rows = connection.execute(REPLACEMENTS, {"branch": branch_id}).all()
    there = {sealed_replacement(row): row for row in rows}
    for text, row in there.items():
        if text not in expected:
            problem = f"the replacement of message {row.old} by {row.new} is not what was written"
            findings.say(branch_id, None, problem)
    if num_gone := len(expected - there.keys()):
        problem = f"{num_gone} replacements of messages are missing or were changed"
        findings.say(branch_id, None, problem)


def verify_pins(
    connection: Connection, findings: Findings, session_id: int, branches: Sequence[int]
) -> None:
    """Verify the pins of a session against its events."""
    main = branches[0]
    keys = {"session": session_id, "branches": list(branches)}
    there: dict[str, int] = {}
    for row in connection.execute(_OF_SESSION, keys):
        is_own = row.scope == PinScope.BRANCH.value
        holder = row.branch_id if is_own else main
        place = {"session_id": session_id, "target_id": row.branch_id if is_own else session_id}
        text = digest_of(row)
        expected = findings.pins.get(text, (None, 0))[0]
        if expected != holder or not _is_placed(row, place):
            _say_pin(findings, holder if holder in branches else main, row)
        there[text] = holder
    gone = [place for text, place in findings.pins.items() if text not in there]
    for branch_id, at in sorted(gone):
        problem = f"a version of a pin that was set after message {at} is missing or was changed"
        findings.say(branch_id, None, problem)


def verify_user(
    connection: Connection, findings: Findings, session_id: int, branch_id: int
) -> None:
    """Verify the chain of the session's user, and the user's pins against it."""
    owner = connection.execute(_OWNER, {"session": session_id}).one()
    begin = user_genesis(owner.namespace, owner.user)
    events = [row._asdict() for row in connection.execute(EVENTS, {"owner": owner.id})]
    findings.user, problems, expected = follow_user(begin, owner.chain, events)
    for problem in problems:
        findings.say(branch_id, None, problem)
    there: set[str] = set()
    place = {"target_id": owner.id, "owner_id": owner.id, "session_id": None, "branch_id": None}
    for row in connection.execute(_OF_USER, {"owner": owner.id}):
        text = digest_of(row)
        if text not in expected or not _is_placed(row, place):
            _say_pin(findings, branch_id, row)
        there.add(text)
    if num_gone := len(expected - there):
        problem = f"{num_gone} versions of the user's pins are missing or were changed"
        findings.say(branch_id, None, problem)


def _is_placed(row: AnyRow, place: Mapping[str, Any]) -> bool:
    """Whether a pin has the right owner, and its newest version."""
    is_newest = row.current == row.newest
    return is_newest and all(getattr(row, name) == value for name, value in place.items())


def _say_pin(findings: Findings, branch_id: int, row: AnyRow) -> None:
    whose = "the user's pin" if row.scope == PinScope.USER.value else "pin"
    problem = f"version {row.version} of {whose} {row.key!r} is not what was set"
    findings.say(branch_id, None, problem)
