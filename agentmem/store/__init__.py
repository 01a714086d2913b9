"""Sessions, branches, messages, pins and the log of prompts, in a database."""

from agentmem.store.deletion import Deleted
from agentmem.store.migrate import current, downgrade, exists, head, revisions, upgrade
from agentmem.store.retention import StaleSession
from agentmem.store.store import Store
from agentmem.store.transfer import Transferred

__all__ = [
    "Deleted",
    "StaleSession",
    "Store",
    "Transferred",
    "current",
    "downgrade",
    "exists",
    "head",
    "revisions",
    "upgrade",
]
