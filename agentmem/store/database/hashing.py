"""The hash functions of chains. SQLite calls `follow` too, to compute links in a statement."""

import hashlib
import json
import secrets
from datetime import UTC, datetime


def digest(*parts: object) -> bytes:
    """Return the hash of *parts*, in an unambiguous encoding."""
    plain = [_plain(part) for part in parts]
    return hashlib.sha256(json.dumps(plain, ensure_ascii=True).encode()).digest()


def follow(link: bytes | None, content: bytes) -> bytes:
    """Return the link of an entry from the previous link and the entry's content hash."""
    return hashlib.sha256((link or b"") + content).digest()


def new_nonce() -> bytes:
    """Return a random nonce, which makes the hash of a text unguessable."""
    return secrets.token_bytes(16)


def _plain(part: object) -> object:
    if isinstance(part, datetime):
        return part.astimezone(UTC).isoformat()
    return part.hex() if isinstance(part, bytes) else part
