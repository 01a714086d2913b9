"""The account of the KV pool, as a value."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KVUsage:
    """
    Where the KV blocks are: ``free + cached + in_use == total``.

    All are 0 for a model whose keys and values cannot be kept in blocks.
    """

    free: int
    cached: int
    """Held by the prefix cache alone: found by a request that needs them, else evicted."""

    in_use: int
    total: int
    block_size: int
    """Token positions in one block."""

    tokens: int
    """Tokens whose keys and values are in blocks in use; the rest of their slots is room."""

    kv_bytes: int
    """Memory that the pool has taken so far."""

    max_kv_bytes: int
    """Memory that it may grow to, by ``InferenceConfig.kv_bytes``."""
