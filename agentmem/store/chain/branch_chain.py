"""
The hash chain of a branch: its entries and links.

An entry is a message, or an event: a deletion, or a change of pins. The link of an entry is a hash
of the previous link and of the entry's content; a branch begins with a hash of its session, owner
and fork. So an entry that is changed, moved, removed or copied from elsewhere does not match its
stored link. The content of a message is hashed with a random nonce, which is deleted with its text:
the hash of a short text alone could be guessed.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import Connection, LargeBinary, bindparam, cast, func, insert, select, update

from agentmem.store.database.damage import check_row
from agentmem.store.database.hashing import digest, follow, new_nonce
from agentmem.store.database.schema import BranchRow, EventRow, MessageRow, OwnerRow, SessionRow

FORMAT: Final = "agentmem chain 1"
MESSAGE_COLUMNS: Final = (
    "role",
    "origin",
    "parts",
    "tool_calls",
    "tool_call_id",
    "name",
    "generated_by",
    "generated_ids",
    "created_at",
    "stored_at",
)
PIN_COLUMNS: Final = ("version", "text", "author", "created_at", "made_from")
_FACTS: Final = (
    select(OwnerRow.namespace, OwnerRow.user, SessionRow.key, SessionRow.created_at)
    .join(SessionRow, SessionRow.owner_id == OwnerRow.id)
    .where(SessionRow.id == bindparam("session"))
)
_PARENT: Final = select(BranchRow.id, BranchRow.parent_id, BranchRow.forked_at).where(
    BranchRow.id == bindparam("branch")
)
_LINK_AT: Final = select(MessageRow.link).where(
    MessageRow.branch_id == bindparam("branch"), MessageRow.position == bindparam("place")
)
_STATE: Final = select(BranchRow.id, BranchRow.session_id, BranchRow.chain, BranchRow.head).where(
    BranchRow.id == bindparam("branch")
)
SET_CHAIN: Final = (
    update(BranchRow)
    .where(BranchRow.id == bindparam("branch"))
    .values(chain=bindparam("new_chain"))
)


def message_digest(nonce: bytes | None, columns: Mapping[str, Any]) -> bytes:
    """Return the hash of a message's content, role, origin and times."""
    return digest("message", nonce, *(columns[name] for name in MESSAGE_COLUMNS))


def pin_digest(nonce: bytes | None, pin: Mapping[str, Any], version: Mapping[str, Any]) -> bytes:
    """Return the hash of one version of a pin."""
    said = (version[name] for name in PIN_COLUMNS)
    return digest("pin", nonce, pin["scope"], pin["key"], *said)


def seal(columns: dict[str, Any]) -> bytes:
    """Set a nonce in the columns of a new message, and return its content hash."""
    columns["nonce"] = new_nonce()
    columns["sealed"] = None
    return message_digest(columns["nonce"], columns)


def genesis(
    facts: Mapping[str, Any], branch: Mapping[str, Any], parent_link: bytes | None
) -> bytes:
    """Return the first link of a branch; *facts* are of its session and its owner."""
    session = (facts["namespace"], facts["user"], facts["key"], facts["created_at"])
    fork = (branch["name"], branch["forked_at"], branch["inherit"], parent_link)
    return digest(FORMAT, *session, *fork)


def genesis_of(connection: Connection, branch: Mapping[str, Any]) -> bytes:
    """Return the first link of a new branch."""
    facts = connection.execute(_FACTS, {"session": branch["session_id"]}).one()
    check_row("session", facts)
    check_row("owner", facts)
    return genesis(
        facts._asdict(), branch, link_at(connection, branch["parent_id"], branch["forked_at"])
    )


def link_at(connection: Connection, branch_id: int | None, position: int) -> bytes | None:
    """Return the link of the message at *position* of a branch's view; None before the first."""
    while branch_id is not None and position > 0:
        holder = connection.execute(_PARENT, {"branch": branch_id}).one()
        if position > holder.forked_at:
            place = {"branch": branch_id, "place": position}
            return connection.execute(_LINK_AT, place).scalar_one_or_none()
        branch_id = holder.parent_id
    return None


def event_digest(at: int, kind: str, content: str) -> bytes:
    """Return the hash of an event that was added when the branch had *at* messages."""
    return digest("event", at, kind, content)


def add_event(
    connection: Connection, branch_id: int, kind: str, content: Mapping[str, object]
) -> None:
    """
    Append an event to a branch's chain. The caller holds the lock of the branch.

    Raises:
        DamagedRowError: the end of the chain cannot be read.
    """
    state = connection.execute(_STATE, {"branch": branch_id}).one()
    check_row("branch", state)
    text = json.dumps(content, sort_keys=True)
    link = follow(state.chain, event_digest(state.head, kind, text))
    row = {"branch_id": branch_id, "at": state.head, "kind": kind, "content": text, "link": link}
    connection.execute(insert(EventRow), row)
    connection.execute(SET_CHAIN, {"branch": branch_id, "new_chain": link})


def changes_of(content: object) -> tuple[set[str], set[str]]:
    """Return the hashes of added and of removed versions in an event of pins."""
    changes: Any = None
    if isinstance(content, str):
        with suppress(ValueError, RecursionError):
            changes = json.loads(content)
    if not isinstance(changes, dict):
        return set(), set()
    lists = (changes.get(name) for name in ("added", "removed"))
    plain = (one if isinstance(one, list) else [] for one in lists)
    added, removed = ({one for one in some if isinstance(one, str)} for some in plain)
    return added, removed


def linked(link: bytes | None, rows: Sequence[dict[str, Any]]) -> bytes | None:
    """Set the links in the columns of new messages, which follow *link*; return the last link."""
    for row in rows:
        link = row["link"] = follow(link, seal(row))
    return link


def followed_in_sql(dialect: str) -> Any:
    """Return the SQL expression that advances a branch's chain by the parameter *content*."""
    content = bindparam("content", type_=LargeBinary())
    if dialect == "postgresql":
        return func.sha256(BranchRow.chain.op("||")(cast(content, LargeBinary())))
    # `follow` itself, registered on each connection.
    return func.agentmem_follow(BranchRow.chain, content, type_=LargeBinary())
