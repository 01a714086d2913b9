"""Usage of the KV pool, as a value."""

from dataclasses import dataclass

from agentmem.types.short_repr import ShortRepr


@dataclass(frozen=True, slots=True, kw_only=True)
class KVUsage(ShortRepr):
    """
    Usage of KV blocks: ``free + cached + in_use == total``.

    ``kv_bytes + run_bytes`` stays within ``max_kv_bytes + max_run_bytes``, and that within
    ``InferenceConfig.kv_bytes``.

    A model without block reuse has no blocks; its own caches of running requests are in
    *run_bytes*.
    """

    free: int
    cached: int
    """Referenced by the prefix cache only: available to requests, else evicted."""

    in_use: int
    total: int
    block_size: int
    """Token positions in one block."""

    tokens: int
    """Tokens whose keys and values are in blocks in use; their other slots are unused."""

    kv_bytes: int
    """Bytes allocated by the block pool so far."""

    max_kv_bytes: int
    """Maximum bytes of the block pool."""

    run_bytes: int
    """
    Bytes of the batch buffers with the keys and values of running requests, or of the model's own
    caches.

    Released as requests end.
    """

    max_run_bytes: int
    """Maximum bytes of all batch buffers; requests that need more wait."""
