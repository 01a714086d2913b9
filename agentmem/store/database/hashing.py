"""The hashes that chains are made of. SQLite calls `follow` too: a statement computes links."""

import hashlib
import json
import secrets
from datetime import UTC, datetime


def digest(*parts: object) -> bytes:
    """Return the hash of *parts*, so written that no two lists of parts are the same."""
    plain = [_plain(part) for part in parts]
    return hashlib.sha256(json.dumps(plain, ensure_ascii=True).encode()).digest()


def follow(link: bytes | None, content: bytes) -> bytes:
    """Return the link of an entry from the one before it and the hash of what it says."""
    return hashlib.sha256((link or b"") + content).digest()


def new_nonce() -> bytes:
    """Return what makes the hash of a text unguessable."""
    return secrets.token_bytes(16)


def _plain(part: object) -> object:
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    return part.hex() if isinstance(part, bytes) else part
