"""Sessions, branches, messages, pins and the log of prompts, in a database."""

from agentmem.store.database.migrate import current, downgrade, exists, head, revisions, upgrade
from agentmem.store.lifecycle.deletion import Deleted
from agentmem.store.lifecycle.retention import StaleSession
from agentmem.store.store import Store
from agentmem.store.transfer.export_import import Transferred

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
