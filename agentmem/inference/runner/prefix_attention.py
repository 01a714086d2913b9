"""
Shared-prefix (cascade) attention, for models whose attention is transformers' own.

The query heads of a group are one matrix, so keys and values are not repeated, and one new token
is several rows of a product; new tokens attend to the past without a mask; and a prefix shared by
several rows is stored once and attended to once for all of them. Parts are merged by their
log-sum-exp (Dao et al. 2022, arXiv:2205.14135, section 3.1; Juravsky et al. 2024,
arXiv:2402.05099).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from agentmem.inference.runner.tiled_attention import MIN_QUERIES, blocked_attention
from agentmem.inference.runner.transformers_cache import PagedCache
from agentmem.machine.device import cpu_has_fast_bf16

_NAME = "agentmem"
_BASE = "sdpa"

_Part = tuple[Tensor, Tensor]
"""Attention over a part of the keys, (rows, kv_heads, queries, dim), and its log-sum-exp."""


def knows_attention(config: Any) -> bool:
    """Return whether the attention of the model of *config* is of a supported form."""
    return getattr(config, "_attn_implementation", None) == _BASE


@contextmanager
def shared_prefix_attention(config: Any) -> Iterator[None]:
    """Replace the attention of the model of *config* in this block."""
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
    run_cache: PagedCache,
    **_: Any,
) -> tuple[Tensor, None]:
    rows, heads, new, dim = query.shape
    kv_heads = key.shape[1]
    scale = dim**-0.5 if scaling is None else scaling
    packed = query.reshape(rows, kv_heads, -1, dim)  # (rows, kv_heads, group * new, dim)
    is_causal = new > 1 and run_cache.window.is_even
    parts = run_cache.layers[module.layer_idx].shared
    if is_causal and not parts and _is_blocked(packed, value):
        out = _blocked(packed, key, value, scale, new=new, is_causal=True)
        return out.view(rows, heads, new, dim).transpose(1, 2), None
    if is_causal:
        part = _causal(query, key, value, scale)
    else:
        bias = None if attention_mask is None else _bias(attention_mask, query, heads // kv_heads)
        part = _whole(packed, key, value, bias, scale)
    for index, keys, values in parts:
        part = _with_shared(part, packed, index, keys, values, scale)
    return part[0].reshape(rows, heads, new, -1).transpose(1, 2), None


def _with_shared(  # noqa: PLR0913, PLR0917 - one more part of a sum
    part: _Part,
    packed: Tensor,  # (rows, kv_heads, queries, dim)
    index: Tensor | None,
    keys: Tensor,  # (1, kv_heads, slots, dim)
    values: Tensor,
    scale: float,
) -> _Part:
    """Merge in the attention of the rows *index* over their shared part."""
    mine = packed if index is None else packed.index_select(0, index)
    rows, kv_heads, queries, dim = mine.shape
    # All rows have the same keys, so their queries are one long row.
    together = mine.transpose(0, 1).reshape(1, kv_heads, -1, dim)
    out, mass = _whole(together, keys, values, None, scale)
    shape = (kv_heads, rows, queries)
    shared = (out.reshape(*shape, -1).transpose(0, 1), mass.reshape(shape).transpose(0, 1))
    if index is None:
        return _merge(part, shared)
    merged = _merge((part[0].index_select(0, index), part[1].index_select(0, index)), shared)
    return part[0].index_copy(0, index, merged[0]), part[1].index_copy(0, index, merged[1])


def _bias(mask: Tensor, query: Tensor, group: int) -> Tensor:
    """Convert a boolean mask to an additive one, repeated per query head of a group."""
    least = torch.finfo(query.dtype).min
    bias = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, least)
    return bias if mask.shape[-2] == 1 else bias.repeat(1, 1, group, 1)


def _causal(query: Tensor, key: Tensor, value: Tensor, scale: float) -> _Part:
    """Causal attention to *key*, whose last positions are those of the queries."""
    rows, heads, new, dim = query.shape
    kv_heads = key.shape[1]
    shape = (rows, kv_heads, heads // kv_heads * new)
    packed = query.reshape(*shape, dim)
    if _is_blocked(packed, value):
        mass = query.new_empty(shape, dtype=torch.float32)
        return _blocked(packed, key, value, scale, new=new, is_causal=True, mass=mass), mass
    if not _has_kernel(query, value):
        mask = torch.ones((new, key.shape[2]), dtype=torch.bool, device=query.device)
        mask = mask.tril_(key.shape[2] - new)[None, None]
        return _whole(packed, key, value, _bias(mask, query, heads // kv_heads), scale)
    out, mass = _kernel(query, key[:, :, -new:], value[:, :, -new:], is_causal=True, scale=scale)
    part = (out.reshape(*shape, -1), mass.reshape(shape))
    if key.shape[2] == new:
        return part
    return _merge(part, _whole(packed, key[:, :, :-new], value[:, :, :-new], None, scale))


def _whole(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float) -> _Part:
    """Attend to all of *key*, with *bias* added to the scores."""
    if bias is None and _is_blocked(query, value):
        mass = query.new_empty(query.shape[:3], dtype=torch.float32)
        new = query.shape[2]
        return _blocked(query, key, value, scale, new=new, is_causal=False, mass=mass), mass
    if _has_kernel(query, value):
        out, mass = _kernel(query, key, value, attn_mask=bias, scale=scale)
        return out, mass
    scores = query @ key.transpose(-1, -2) * scale  # (rows, kv_heads, queries, slots)
    if bias is not None:
        scores += bias
    scores = scores.float()
    mass = scores.logsumexp(-1)
    return (scores - mass[..., None]).exp_().to(value.dtype) @ value, mass


def _blocked(  # noqa: PLR0913 - what `blocked_attention` takes
    packed: Tensor,  # (rows, kv_heads, group * new, dim)
    key: Tensor,
    value: Tensor,
    scale: float,
    *,
    new: int,
    is_causal: bool,
    mass: Tensor | None = None,  # (rows, kv_heads, group * new)
) -> Tensor:
    rows, kv_heads, queries, dim = packed.shape
    shape = (rows * kv_heads, queries // new, new)
    out = blocked_attention(
        packed.reshape(*shape, dim),
        key.flatten(0, 1),
        value.flatten(0, 1),
        scale=scale,
        is_causal=is_causal,
        mass=None if mass is None else mass.view(shape),
    )
    return out.view(packed.shape)


def _is_blocked(query: Tensor, value: Tensor) -> bool:
    is_half = query.dtype == torch.bfloat16 and _has_kernel(query, value)
    return is_half and query.shape[2] >= MIN_QUERIES and cpu_has_fast_bf16()


def _has_kernel(query: Tensor, value: Tensor) -> bool:
    return query.device.type == "cpu" and query.shape[-1] == value.shape[-1]


def _kernel(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> _Part:
    # No public function returns the log-sum-exp too.
    attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu  # noqa: SLF001 - as said
    out, mass = attend(query, key, value, **options)
    return out, mass


def _merge(one: _Part, other: _Part) -> _Part:
    share = torch.sigmoid(one[1] - other[1])[..., None].to(one[0].dtype)
    return torch.lerp(other[0], one[0], share), torch.logaddexp(one[1], other[1])


AttentionInterface.register(_NAME, _attend)
AttentionMaskInterface.register(_NAME, sdpa_mask)
