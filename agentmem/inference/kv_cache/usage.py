"""The account of the KV pool, as a value."""

from dataclasses import dataclass

from agentmem.types.short_repr import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True)
class KVUsage(ShortRepr):
    """
    Where the KV blocks are: ``free + cached + in_use == total``.

    ``kv_bytes + run_bytes`` stays within ``max_kv_bytes + max_run_bytes``, and that within
    ``InferenceConfig.kv_bytes``.

    There are no blocks for a model whose keys and values cannot be kept in them; what it keeps by
    itself for each request that runs is in *run_bytes* then.
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
    """Bytes that the pool of blocks has taken so far."""

    max_kv_bytes: int
    """Bytes that the pool may grow to."""

    run_bytes: int
    """
    Bytes of the buffers beside the pool in which requests that run have their keys and values, or
    of the caches of the model's own making.

    They are given back as requests end.
    """

    max_run_bytes: int
    """Bytes that those buffers may take together; what needs more waits, or runs later."""
