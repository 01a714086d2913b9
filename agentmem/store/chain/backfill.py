"""Build hash chains for data of older versions without one, in a database or an export."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from agentmem.store.chain.branch_chain import (
    MESSAGE_COLUMNS,
    SET_CHAIN,
    add_event,
    changes_of,
    event_digest,
    genesis_of,
    message_digest,
)
from agentmem.store.chain.log_chain import EVENT as LOG_EVENT
from agentmem.store.chain.log_chain import SET_LOG_CHAIN, Purged, entries_of, purged_of
from agentmem.store.chain.pin_chain import EVENT as PIN_EVENT
from agentmem.store.chain.pin_chain import VERSIONS, digest_of
from agentmem.store.chain.replacement_chain import EVENT as REPLACEMENTS_EVENT
from agentmem.store.chain.replacement_chain import (
    REPLACEMENTS,
    note_replacements,
    sealed_replacement,
)
from agentmem.store.chain.summary_chain import EVENT as SUMMARIES_EVENT
from agentmem.store.chain.summary_chain import Sealed, note_summaries, sealed, take_changes
from agentmem.store.chain.user_chain import SET_CHAIN as SET_USER_CHAIN
from agentmem.store.chain.user_chain import add_user_event, user_genesis
from agentmem.store.database.damage import UNREADABLE
from agentmem.store.database.hashing import follow, new_nonce
from agentmem.store.database.schema import (
    AssemblyRow,
    BranchRow,
    EventRow,
    MessageRow,
    OwnerRow,
    PinRow,
    SummaryRow,
)
from agentmem.types import PinScope

_BATCH: Final = 500
_BRANCHES: Final = select(
    BranchRow.id,
    BranchRow.session_id,
    BranchRow.parent_id,
    BranchRow.name,
    BranchRow.forked_at,
    BranchRow.inherit,
).order_by(BranchRow.id)
_MESSAGES: Final = (
    select(
        MessageRow.id,
        MessageRow.position,
        MessageRow.nonce,
        MessageRow.sealed,
        *(getattr(MessageRow, name) for name in MESSAGE_COLUMNS),
    )
    .where(MessageRow.branch_id == bindparam("branch"), MessageRow.position > bindparam("after"))
    .order_by(MessageRow.position)
    .limit(_BATCH)
)
_SET_LINK: Final = (
    update(MessageRow)
    .where(MessageRow.id == bindparam("row"))
    .values(nonce=bindparam("new_nonce"), link=bindparam("new_link"))
)
_EVENTS: Final = (
    select(EventRow.at, EventRow.kind, EventRow.content)
    .where(EventRow.branch_id == bindparam("branch"))
    .order_by(EventRow.id)
)
_NOTED: Final = (
    select(EventRow.kind, EventRow.content)
    .where(EventRow.branch_id == bindparam("branch"))
    .order_by(EventRow.id)
)
_SUMMARIES: Final = select(SummaryRow.__table__).where(SummaryRow.branch_id == bindparam("branch"))
_SET_LOG_LINK: Final = (
    update(AssemblyRow).where(AssemblyRow.id == bindparam("row")).values(link=bindparam("new_link"))
)
_OWNERS: Final = select(OwnerRow.id, OwnerRow.namespace, OwnerRow.user).order_by(OwnerRow.id)
_OF_USER: Final = VERSIONS.where(
    PinRow.owner_id == bindparam("owner"), PinRow.scope == PinScope.USER.value
)


def chain_session(connection: Connection, session_id: int | None) -> None:
    """Rebuild the chain of a session, or of every one; deleted messages keep their hashes."""
    chosen = _BRANCHES
    if session_id is not None:
        chosen = chosen.where(BranchRow.session_id == session_id)
    for branch in connection.execute(chosen).all():
        _chain_branch(connection, branch._asdict())


def _chain_branch(connection: Connection, branch: dict[str, Any]) -> None:
    link: bytes | None = genesis_of(connection, branch)
    keys = {"branch": branch["id"]}
    events = list(connection.execute(_EVENTS, keys).all())
    connection.execute(delete(EventRow).where(EventRow.branch_id == branch["id"]))
    written: list[dict[str, Any]] = []

    def pass_events(until: int | None) -> None:
        nonlocal link
        while events and (until is None or events[0].at < until):
            event = events.pop(0)
            link = follow(link, event_digest(event.at, event.kind, event.content))
            written.append({"branch_id": branch["id"], **event._asdict(), "link": link})

    after = 0
    while rows := connection.execute(_MESSAGES, {**keys, "after": after}).all():
        changes = []
        for row in rows:
            pass_events(row.position)
            nonce = row.nonce if row.nonce is not None or row.sealed is not None else new_nonce()
            link = follow(link, row.sealed or message_digest(nonce, row._asdict()))
            changes.append({"row": row.id, "new_nonce": nonce, "new_link": link})
        connection.execute(_SET_LINK, changes)
        after = rows[-1].position
    pass_events(None)
    if written:
        connection.execute(insert(EventRow), written)
    connection.execute(SET_CHAIN, {"branch": branch["id"], "new_chain": link})
    if not any(event["kind"] == PIN_EVENT for event in written):
        _note_old_pins(connection, branch)


def _note_old_pins(connection: Connection, branch: dict[str, Any]) -> None:
    """Add events for pins that were set before there were chains."""
    is_own = PinRow.branch_id == branch["id"]
    if branch["parent_id"] is None:
        is_of_session = PinRow.session_id == branch["session_id"]
        is_own |= is_of_session & (PinRow.scope == PinScope.SESSION.value)
    rows = connection.execute(VERSIONS.where(is_own)).all()
    if rows:
        added = sorted(digest_of(row) for row in rows)
        add_event(connection, branch["id"], PIN_EVENT, {"added": added, "removed": []})


def chain_made(connection: Connection, session_id: int | None, *, is_new: bool) -> None:
    """
    Build the log chain of a session, or of every one, from its beginning.

    Log and summaries that are *is_new* to the chain get an event that says so. Those that were
    chained elsewhere keep their events, and get links of this session.
    """
    chosen = _BRANCHES
    if session_id is not None:
        chosen = chosen.where(BranchRow.session_id == session_id)
    for row in connection.execute(chosen).all():
        branch = row._asdict()
        events = connection.execute(_NOTED, {"branch": row.id}).all()
        begin = genesis_of(connection, branch)
        if not is_new:
            _chain_log(connection, row.id, begin, purged_of(events))
            continue
        _note_summaries(connection, row.id, events)
        number, named = _chain_log(connection, row.id, begin, Purged())
        if number:
            content = {"adopted": number, "runs": [], "named": named}
            add_event(connection, row.id, LOG_EVENT, content)


def chain_replacements(connection: Connection, session_id: int) -> None:
    """Add events for replacements of a session that its chain does not know."""
    for branch in connection.execute(_BRANCHES.where(BranchRow.session_id == session_id)).all():
        events = connection.execute(_NOTED, {"branch": branch.id}).all()
        _note_replacements(connection, branch.id, events)


def chain_users(connection: Connection) -> None:
    """Build the chain of every user, from the current pins."""
    for owner in connection.execute(_OWNERS).all():
        begin = user_genesis(owner.namespace, owner.user)
        connection.execute(SET_USER_CHAIN, {"owner": owner.id, "new_chain": begin})
        note_user_pins(connection, owner.id)


def note_user_pins(connection: Connection, owner_id: int) -> None:
    """Add an event for all pins of a user."""
    rows = connection.execute(_OF_USER, {"owner": owner_id}).all()
    if rows:
        add_user_event(connection, owner_id, added={digest_of(row) for row in rows})


def _chain_log(
    connection: Connection, branch_id: int, begin: bytes, purged: Purged
) -> tuple[int, dict[int, str]]:
    """Link the entries of a log; return their number and the records added by retentions."""
    number, link = purged.skip(0, begin)
    named: dict[int, str] = {}
    changes: list[dict[str, Any]] = []
    for entry in entries_of(connection, branch_id):
        number += 1
        link = follow(link, entry.content or b"")
        changes.append({"row": entry.id, "new_link": link})
        if entry.named_anew is not None:
            named[number] = entry.named_anew
        number, link = purged.skip(number, link)
        if len(changes) == _BATCH:
            connection.execute(_SET_LOG_LINK, changes)
            changes = []
    if changes:
        connection.execute(_SET_LOG_LINK, changes)
    connection.execute(SET_LOG_CHAIN, {"branch": branch_id, "new_log_chain": link})
    return number, named


def _note_summaries(connection: Connection, branch_id: int, events: Iterable[Any]) -> None:
    noted: dict[str, Sealed] = {}
    for event in events:
        if event.kind == SUMMARIES_EVENT:
            with suppress(*UNREADABLE):
                take_changes(noted, json.loads(event.content))
    rows = [row._asdict() for row in connection.execute(_SUMMARIES, {"branch": branch_id})]
    changed = [row for row in rows if noted.get(row["key"]) != sealed(row)]
    note_summaries(connection, branch_id, changed, noted.keys() - {row["key"] for row in rows})


def _note_replacements(connection: Connection, branch_id: int, events: Iterable[Any]) -> None:
    noted: set[str] = set()
    for event in events:
        if event.kind == REPLACEMENTS_EVENT:
            added, removed = changes_of(event.content)
            noted = (noted - removed) | added
    rows = connection.execute(REPLACEMENTS, {"branch": branch_id})
    there = {sealed_replacement(row) for row in rows}
    note_replacements(connection, branch_id, added=there - noted, removed=noted - there)
