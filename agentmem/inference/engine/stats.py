"""Counters of an engine, and the immutable value for callers."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelStats(Checked):
    """
    Counters of a model since it was loaded, and the current usage of its KV blocks.

    All but the fields ``kv_*`` are counters: they only grow, and two readings are subtracted. They
    are read without waiting for a step, so that the numbers may be from different steps.

    A request counts once in *requests*, *prefix_query_tokens*, *prefix_hit_tokens* and
    *refused_reuse*, when it first starts, however often it is preempted or starts over.
    """

    requests: int
    """Requests that have started; forks of a prompt too."""

    passes: int
    """Forward passes; a pass that failed is not counted."""

    batched_passes: int
    """Forward passes that computed tokens of more than one request."""

    prefill_tokens: int
    """Tokens of prompts that were computed, and of answers that were computed again."""

    decode_tokens: int
    """Generated tokens that were computed one at a time."""

    prefix_query_tokens: int
    """Prompt tokens that were looked up in the prefix cache: those of all that have started."""

    prefix_hit_tokens: int
    """Prompt tokens that were found there, or taken from the prompt of which they are a fork."""

    evictions: int
    """Cached blocks that were freed because a request needed room."""

    preemptions: int
    """How often a running request gave its blocks back, to be computed again later."""

    forks: int
    """Requests that shared the blocks of a prompt that was just computed."""

    refused_reuse: Mapping[str, int]
    """Requests that could not reuse a prefix, by the reason; empty for most models."""

    kv_free: int
    """Free KV blocks."""

    kv_cached: int
    """KV blocks referenced by the prefix cache only."""

    kv_in_use: int
    kv_total: int
    kv_bytes: int
    """Bytes that the pool has taken so far."""

    @property
    def prefix_hit_rate(self) -> float:
        """Share of prompt tokens found in the prefix cache; 0 before any was looked up."""
        return self.prefix_hit_tokens / max(self.prefix_query_tokens, 1)


@dataclass(slots=True)
class Counters:
    """The counters of `ModelStats` as they grow; they are changed with the lock of a step held."""

    requests: int = 0
    passes: int = 0
    batched_passes: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    preemptions: int = 0
    forks: int = 0
    refused_reuse: Counter[str] = field(default_factory=Counter)
