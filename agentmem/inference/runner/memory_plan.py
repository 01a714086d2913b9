"""
How `InferenceConfig.kv_bytes` is split between blocks and the buffers of passes. Plain Python.

What a request has behind it is in blocks, from where others can share it, and while it runs in the
buffers of a run too, where the passes of the model read it. Both together stay within kv_bytes.
"""

from dataclasses import dataclass

from agentmem.errors import ConfigError
from agentmem.inference.runner.batch_plan import SPARE_SLOTS

_MIN_BLOCKS = 4
"""The null block, one to use, and as much in buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The two shares."""

    num_blocks: int
    """Blocks of the pool, without the null block."""

    run_slots: int
    """Token positions that the buffers of all runs may hold together."""

    own_bytes: int = 0
    """Memory for the caches that a model makes for itself, if it has no blocks."""


def plan_memory(
    kv_bytes: int, *, block_bytes: int, block_size: int, longest: int, max_num_seqs: int
) -> MemoryPlan:
    """
    Split *kv_bytes* so that a request which fits the pool also fits the buffers, alone.

    Buffers have half, or what they can use at most, if that is less.

    Args:
        kv_bytes: memory for both.
        block_bytes: memory of one block.
        block_size: token positions in one block.
        longest: tokens that one request may have.
        max_num_seqs: requests that run at once.

    Raises:
        ConfigError: there is no room for one block of each.
    """
    total = kv_bytes // block_bytes
    if total < _MIN_BLOCKS:
        raise ConfigError(
            f"kv_bytes {kv_bytes} holds less than {_MIN_BLOCKS} KV blocks of {block_bytes} bytes: "
            "raise InferenceConfig.kv_bytes or lower block_size"
        )
    rows = 1 << max(max_num_seqs - 1, 3).bit_length()
    useful = -(-rows * (2 * longest + block_size + SPARE_SLOTS) // block_size)
    runs = min(total - total // 2, useful)
    # One more block is the null block.
    return MemoryPlan(num_blocks=total - runs - 1, run_slots=runs * block_size)
