"""
Attention of many queries in bfloat16 on a CPU, as plain products of matrices.

The library's kernel for the CPU does the same in a third of the speed of its products (measured:
1,024 queries over 1,024 keys, 3 of 9 heads with keys of their own, 11 against 3 ms). Scores are
rounded to bfloat16 in between, as in the library's plain form of attention; over a whole model
that is lost in the rounding of everything else.
"""

import torch
from torch import Tensor

_MAX_SCORES = 1 << 21
"""Scores at a time, so that they stay in a cache of the processor between two products."""

_MIN_QUERIES = 16

MIN_QUERIES = 24
"""Below this the library's kernel is as fast."""


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
    Attend, a block of queries at a time.

    Args:
        query: each *group* of heads asks the same keys.
        key: what they ask; the last *new* of it stand where the queries do.
        value: what they get.
        scale: factor of the scores.
        is_causal: whether a query sees no key behind its own.
        mass: where to put the log of the sum of each query's exponential scores, if it is needed.
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
            # The largest share is its exponential score over the sum.
            log_sum = scores.amax(-1).float() - shares.amax(-1).float().log()
            mass[:, :, block] = log_sum.view(batch, group, num)
    return out
