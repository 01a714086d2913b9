"""Chaining what is stored without a chain: a database or an export of before there were any."""

from typing import Any, Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from agentmem.store.chain import (
    MESSAGE_COLUMNS,
    SET_CHAIN,
    add_event,
    event_digest,
    follow,
    genesis_of,
    message_digest,
    new_nonce,
)
from agentmem.store.pin_chain import EVENT, VERSIONS, digest_of
from agentmem.store.schema import BranchRow, MessageRow, PinRow
from agentmem.store.schema_derived import EventRow
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


def chain_session(connection: Connection, session_id: int | None) -> None:
    """Chain all that a session has, or every session, anew; deleted messages keep their hashes."""
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
    if not any(event["kind"] == EVENT for event in written):
        _note_old_pins(connection, branch)


def _note_old_pins(connection: Connection, branch: dict[str, Any]) -> None:
    """Note the pins that were set before there were chains."""
    is_own = PinRow.branch_id == branch["id"]
    if branch["parent_id"] is None:
        is_of_session = PinRow.session_id == branch["session_id"]
        is_own |= is_of_session & (PinRow.scope == PinScope.SESSION.value)
    rows = connection.execute(VERSIONS.where(is_own)).all()
    if rows:
        added = sorted(digest_of(row) for row in rows)
        add_event(connection, branch["id"], EVENT, {"added": added, "removed": []})
