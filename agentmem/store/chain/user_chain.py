"""
The hash chain of a user's pins, which belong to no session.

Each entry has the hashes of added and removed versions. The first link is a hash of the owner.
"""

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select, update

from agentmem.store.chain.branch_chain import changes_of
from agentmem.store.database.damage import check_row
from agentmem.store.database.hashing import digest, follow
from agentmem.store.database.schema import OwnerRow, UserEventRow

_FORMAT: Final = "agentmem chain of a user 1"
_STATE: Final = (
    select(OwnerRow.chain).where(OwnerRow.id == bindparam("owner")).with_for_update(key_share=True)
)
SET_CHAIN: Final = (
    update(OwnerRow).where(OwnerRow.id == bindparam("owner")).values(chain=bindparam("new_chain"))
)
EVENTS: Final = (
    select(UserEventRow.content, UserEventRow.link)
    .where(UserEventRow.owner_id == bindparam("owner"))
    .order_by(UserEventRow.id)
)


def user_genesis(namespace: str, user: str) -> bytes:
    """Return the first link of a user's chain."""
    return digest(_FORMAT, namespace, user)


def user_event_digest(content: str) -> bytes:
    """Return the hash of an event."""
    return digest("user event", content)


def add_user_event(
    connection: Connection,
    owner_id: int,
    *,
    added: AbstractSet[str] = frozenset(),
    removed: AbstractSet[str] = frozenset(),
) -> None:
    """Append an event of added and removed pin versions to a user's chain."""
    changes = {"added": sorted(added - removed), "removed": sorted(removed - added)}
    text = json.dumps(changes, sort_keys=True)
    owner = connection.execute(_STATE, {"owner": owner_id}).one()
    check_row("owner", owner)
    link = follow(owner.chain, user_event_digest(text))
    row = {"owner_id": owner_id, "content": text, "link": link}
    connection.execute(insert(UserEventRow), row)
    connection.execute(SET_CHAIN, {"owner": owner_id, "new_chain": link})


def follow_user(
    begin: bytes, end: object, events: Iterable[Mapping[str, Any]]
) -> tuple[list[bytes], list[str], set[str]]:
    """
    Verify a user's chain from its beginning.

    Return its links, beginning with the first, the problems in words, and the hashes of the
    expected versions.
    """
    links, problems = [begin], []
    there: set[str] = set()
    for number, event in enumerate(events, 1):
        content = str(event["content"])
        link = event["link"] if isinstance(event["link"], bytes) else b""
        if follow(links[-1], user_event_digest(content)) != link:
            problems.append(f"event {number} of the user's pins does not follow what was")
        links.append(link)
        added, removed = changes_of(content)
        there = (there | added) - removed
    if links[-1] != end:
        problems.append("the newest event of the user's pins is not the one that they end with")
    return links, problems, there
