"""How commands open a database: to look, to change what is there, or to make a new one."""

from agentmem.config import DatabaseConfig
from agentmem.errors import DatabaseUrlError, SchemaVersionError, StoreError
from agentmem.memory import Memory
from agentmem.protocols import Retriever

_EXISTING = DatabaseConfig(create=False)


def open_to_read(url: str, namespace: str) -> Memory:
    """Open a database that is there, also one that is write-protected, and change nothing."""
    return Memory.open(url, namespace=namespace, read_only=True)


def open_to_change(url: str, namespace: str) -> Memory:
    """Open a database that is there."""
    return Memory.open(url, namespace=namespace, database=_EXISTING)


def open_to_search(url: str, namespace: str, retriever: Retriever) -> Memory:
    """Open a database that is there, to search it; new vectors are kept where it takes them."""
    try:
        return Memory.open(url, namespace=namespace, retriever=retriever, database=_EXISTING)
    except (DatabaseUrlError, SchemaVersionError):
        raise
    except StoreError:
        return Memory.open(url, namespace=namespace, retriever=retriever, read_only=True)
