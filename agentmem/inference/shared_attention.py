"""
Attention to a prefix that several rows share, computed once for all of them.

The prefix is held once, and the queries of all rows stand in one matrix against it. Each row's
own part is attended to as usual, and the two are merged by their log-sum-exp (Dao et al. 2022,
arXiv:2205.14135, section 3.1; Juravsky et al. 2024, arXiv:2402.05099).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from agentmem.inference.paged_cache import PagedCache

_NAME = "agentmem_shared"
_BASE = "sdpa"


def knows_attention(config: Any) -> bool:
    """Tell whether the model of *config* computes attention in the way that is known here."""
    return getattr(config, "_attn_implementation", None) == _BASE


@contextmanager
def shared_attention(config: Any) -> Iterator[None]:
    """Let the model of *config* attend to shared parts in this block."""
    config._attn_implementation = _NAME  # noqa: SLF001 - where the library looks it up
    try:
        yield
    finally:
        config._attn_implementation = _BASE  # noqa: SLF001 - as above


def _attend(  # noqa: PLR0913, PLR0917 - the library's signature
    module: Any,
    query: Tensor,  # (rows, heads, new, dim)
    key: Tensor,  # (rows, kv_heads, slots, dim)
    value: Tensor,
    attention_mask: Tensor | None,  # (rows, 1, new, slots), True where to look
    scaling: float | None = None,
    *,
    shared_prefix: PagedCache,
    **_: Any,
) -> tuple[Tensor, None]:
    rows, heads, new, dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    scale = dim**-0.5 if scaling is None else scaling
    if attention_mask is None and new > 1:
        slots = torch.arange(key.shape[2], device=key.device)
        attention_mask = (slots <= slots[-new:, None])[None, None]
    packed = query.reshape(rows, kv_heads, group * new, dim)
    bias = None if attention_mask is None else _bias(attention_mask, query.dtype, group)
    out, mass = _part(packed, key, value, bias, scale)
    for index, keys, values in shared_prefix.layers[module.layer_idx].shared:
        mine = packed if index is None else packed.index_select(0, index)
        # All rows ask the same keys, so their queries are one long row.
        together = mine.transpose(0, 1).reshape(1, kv_heads, -1, dim)
        common, weight = _part(together, keys, values, None, scale)
        common = common.reshape(kv_heads, -1, group * new, values.shape[-1]).transpose(0, 1)
        weight = weight.reshape(kv_heads, -1, group * new).transpose(0, 1)
        if index is None:
            out = _merge(out, mass, common, weight)
        else:
            own, own_mass = out.index_select(0, index), mass.index_select(0, index)
            out = out.index_copy(0, index, _merge(own, own_mass, common, weight))
    return out.reshape(rows, heads, new, -1).transpose(1, 2), None


def _bias(mask: Tensor, dtype: torch.dtype, group: int) -> Tensor:
    """Make a boolean mask one that is added, once per query head of a group."""
    bias = torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
    return bias if mask.shape[-2] == 1 else bias.repeat(1, 1, group, 1)


def _part(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    """Attend; give the result and the log of the sum that it was divided by."""
    if query.device.type == "cpu" and key.shape[-1] == value.shape[-1]:
        # No public call gives the sum as well.
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - as said
        out, mass = attend(query, key, value, attn_mask=bias, scale=scale)
        return out, mass
    scores = query @ key.transpose(-1, -2) * scale  # (rows, kv_heads, queries, slots)
    if bias is not None:
        scores += bias
    scores = scores.float()
    mass = scores.logsumexp(-1)
    return (scores - mass[..., None]).exp_().to(value.dtype) @ value, mass


def _merge(out: Tensor, mass: Tensor, other: Tensor, other_mass: Tensor) -> Tensor:
    share = torch.sigmoid(mass - other_mass)[..., None].to(out.dtype)
    return torch.lerp(other, out, share)


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, sdpa_mask)
