"""What was said: sessions, branches, messages, pins and the log of prompts, in a database."""

from agentmem.store.migrate import current, downgrade, head, upgrade
from agentmem.store.store import Store

__all__ = [
    "Store",
    "current",
    "downgrade",
    "head",
    "upgrade",
]
