"""
Tiled attention of many queries in bfloat16 on a CPU, as plain matrix products.

torch's CPU kernel is three times slower than its matrix products (measured: 1,024 queries over
1,024 keys, 9 heads with 3 key-value heads, 11 against 3 ms). Scores are rounded to bfloat16 in
between, as in the unfused attention; over a whole model that is within the other rounding errors.
"""

import torch
from torch import Tensor

_MAX_SCORES = 1 << 21
"""Scores per tile, so that they stay in the CPU cache between two products."""

_MIN_QUERIES = 16

MIN_QUERIES = 24
"""Below this torch's kernel is as fast."""


def blocked_attention(  # noqa: PLR0913 - torch's own attention takes seven
    query: Tensor,  # (batch, group, new, dim)
    key: Tensor,  # (batch, slots, dim)
    value: Tensor,
    *,
    scale: float,
    is_causal: bool,
    mass: Tensor | None = None,
) -> Tensor:  # (batch, group, new, dim)
    """
    Attend, one tile of queries at a time.

    Args:
        query: each *group* of heads shares the keys.
        key: the keys; the last *new* positions are those of the queries.
        value: the values.
        scale: factor of the scores.
        is_causal: whether a query attends to no later position than its own.
        mass: output for the log-sum-exp of each query's scores, if needed.
            # (batch, group, new), float32
    """
    batch, group, new, dim = query.shape
    past = key.shape[1] - new
    out = torch.empty_like(query)
    size = max(_MIN_QUERIES, _MAX_SCORES // (batch * group * key.shape[1]))
    ahead = torch.ones((min(size, new),) * 2, dtype=torch.bool, device=query.device).triu_(1)
    for first in range(0, new, size):
        block = slice(first, min(first + size, new))
        num = block.stop - first
        seen = past + block.stop if is_causal else key.shape[1]
        asked = query[:, :, block].reshape(batch, group * num, dim)
        scores = torch.baddbmm(
            asked.new_empty(1, 1, 1),
            asked,
            key[:, :seen].transpose(1, 2),
            beta=0,
            alpha=scale,
        )  # (batch, group * num, seen)
        if is_causal:
            last = scores.view(batch, group, num, seen)[..., past + first :]
            last.masked_fill_(ahead[:num, :num], float("-inf"))
        shares = scores.softmax(-1)
        out[:, :, block] = (shares @ value[:, :seen]).view(batch, group, num, dim)
        if mass is not None:
            # The largest weight is its exponential score over the sum.
            log_sum = scores.amax(-1).float() - shares.amax(-1).float().log()
            mass[:, :, block] = log_sum.view(batch, group, num)
    return out
