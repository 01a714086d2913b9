"""Content hashes of messages, which show whether a stored vector still belongs to its text."""

import hashlib
from typing import Final

from agentmem.retrieval.rows.message_table import IndexedMessage
from agentmem.types import SessionId

NO_SESSION: Final = SessionId(0)
"""For an entry that is only looked at: what a message says does not depend on its session."""


def content_hash(entry: IndexedMessage) -> int:
    """
    Return a hash of 64 bits over the place and the words of a message.

    A database that was restored or replaced has other messages under the ids that an index knows;
    where the mark is the same, so is what was embedded.
    """
    place = f"{entry.message_id} {entry.branch_id} {entry.position}"
    # No text has a NUL, so no two messages give the same whole.
    whole = f"{place}\0{entry.speaker}\0{entry.text}".encode()
    digest = hashlib.blake2b(whole, digest_size=8).digest()
    return int.from_bytes(digest, "little")
