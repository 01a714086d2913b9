"""
How `InferenceConfig.kv_bytes` is split between blocks and the buffers of passes. Plain Python.

The past of a request is in blocks, where others can share it, and while it runs also in batch
buffers, where the model reads it. Both together stay within kv_bytes.
"""

from dataclasses import dataclass

from agentmem.errors import ConfigError
from agentmem.inference.runner.batch_plan import SPARE_SLOTS

_MIN_BLOCKS = 4
"""The null block, one usable block, and as much in buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The two shares."""

    num_blocks: int
    """Blocks of the pool, without the null block."""

    run_slots: int
    """Maximum token positions in the buffers of all runs."""

    own_bytes: int = 0
    """Maximum memory of a model's own caches, if it has no blocks."""


def plan_memory(
    kv_bytes: int, *, block_bytes: int, block_size: int, longest: int, max_num_seqs: int
) -> MemoryPlan:
    """
    Split *kv_bytes* so that a request which fits the pool also fits the buffers, alone.

    Buffers get half, or the maximum that they can use, if that is less.

    Args:
        kv_bytes: memory for both.
        block_bytes: memory of one block.
        block_size: token positions in one block.
        longest: maximum tokens of one request.
        max_num_seqs: maximum concurrent requests.

    Raises:
        ConfigError: the memory is too small for one block of each.
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
