"""The database store of sessions, branches, messages, pins and prompt logs."""

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
