"""Chaining what an older version stored without: the log of prompts, summaries, a user's pins."""

import json
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, bindparam, select, update

from agentmem.store.chain import add_event, follow, genesis_of
from agentmem.store.damage import UNREADABLE
from agentmem.store.log_chain import EVENT as LOG_EVENT
from agentmem.store.log_chain import SET_LOG_CHAIN, Purged, entries_of, purged_of
from agentmem.store.pin_chain import VERSIONS, digest_of
from agentmem.store.schema import AssemblyRow, BranchRow, OwnerRow, PinRow
from agentmem.store.schema_derived import EventRow, SummaryRow
from agentmem.store.summary_chain import EVENT as SUMMARIES_EVENT
from agentmem.store.summary_chain import Sealed, note_summaries, sealed, take_changes
from agentmem.store.user_chain import SET_CHAIN, add_user_event, user_genesis
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
_EVENTS: Final = (
    select(EventRow.kind, EventRow.content)
    .where(EventRow.branch_id == bindparam("branch"))
    .order_by(EventRow.id)
)
_SUMMARIES: Final = select(SummaryRow.__table__).where(SummaryRow.branch_id == bindparam("branch"))
_SET_LINK: Final = (
    update(AssemblyRow).where(AssemblyRow.id == bindparam("row")).values(link=bindparam("new_link"))
)
_OWNERS: Final = select(OwnerRow.id, OwnerRow.namespace, OwnerRow.user).order_by(OwnerRow.id)
_OF_USER: Final = VERSIONS.where(
    PinRow.owner_id == bindparam("owner"), PinRow.scope == PinScope.USER.value
)


def chain_made(connection: Connection, session_id: int | None, *, is_new: bool) -> None:
    """
    Chain the log of a session, or of every one, from its beginning.

    What *is_new* in the chain, the log and the summaries, gets an event that says so. What was
    chained elsewhere keeps its events, and gets links of this session.
    """
    chosen = _BRANCHES
    if session_id is not None:
        chosen = chosen.where(BranchRow.session_id == session_id)
    for row in connection.execute(chosen).all():
        branch = row._asdict()
        events = connection.execute(_EVENTS, {"branch": row.id}).all()
        begin = genesis_of(connection, branch)
        if not is_new:
            _chain_log(connection, row.id, begin, purged_of(events))
            continue
        _note_summaries(connection, row.id, events)
        number, named = _chain_log(connection, row.id, begin, Purged())
        if number:
            content = {"adopted": number, "runs": [], "named": named}
            add_event(connection, row.id, LOG_EVENT, content)


def chain_users(connection: Connection) -> None:
    """Begin the chain of every user, with the pins that there are."""
    for owner in connection.execute(_OWNERS).all():
        begin = user_genesis(owner.namespace, owner.user)
        connection.execute(SET_CHAIN, {"owner": owner.id, "new_chain": begin})
        note_user_pins(connection, owner.id)


def note_user_pins(connection: Connection, owner_id: int) -> None:
    """Note all pins that a user has."""
    rows = connection.execute(_OF_USER, {"owner": owner_id}).all()
    if rows:
        add_user_event(connection, owner_id, added={digest_of(row) for row in rows})


def _chain_log(
    connection: Connection, branch_id: int, begin: bytes, purged: Purged
) -> tuple[int, dict[int, str]]:
    """Link the entries of a log; return their number and what was added to them by retentions."""
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
            connection.execute(_SET_LINK, changes)
            changes = []
    if changes:
        connection.execute(_SET_LINK, changes)
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
