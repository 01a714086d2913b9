"""Content hashes of messages, to validate stored vectors."""

import hashlib
from typing import Final

from agentmem.retrieval.rows.message_table import IndexedMessage
from agentmem.types import SessionId

NO_SESSION: Final = SessionId(0)
"""A placeholder: the searchable text does not depend on the session."""


def content_hash(entry: IndexedMessage) -> int:
    """
    Return a 64-bit hash over the position and the text of a message.

    A restored or replaced database has other messages under known ids; with an equal hash the
    stored vector is valid.
    """
    place = f"{entry.message_id} {entry.branch_id} {entry.position}"
    # NUL is a safe separator: no text has one.
    whole = f"{place}\0{entry.speaker}\0{entry.text}".encode()
    digest = hashlib.blake2b(whole, digest_size=8).digest()
    return int.from_bytes(digest, "little")
