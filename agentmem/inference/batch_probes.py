"""
Whether a model gives the same answers when rows go through it together.

It is tried on a few tokens when the model is loaded: no list of architectures is ever complete.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from agentmem.inference.paged_cache import PagedCache


class Model(Protocol):
    """What is tried."""

    dtype: torch.dtype

    @property
    def vocab_size(self) -> int: ...
    @property
    def knows_attention(self) -> bool: ...
    def new_cache(self) -> PagedCache: ...
    def forward(
        self,
        rows: Sequence[Sequence[int]],
        cache: PagedCache,
        positions: Sequence[int] | None = None,
    ) -> Tensor: ...


_LONG, _SHORT = 40, 9
_SHARED = 24


def can_batch(model: Model) -> bool:
    """Tell whether rows of different lengths, padded to one, give what each gives alone."""
    rows = _rows(model)
    cache = model.new_cache()
    cache.window.lengths = [0, 0]
    first = model.forward(rows, cache, [0, 0])
    second = model.forward([[3], [4]], cache, [_LONG, _SHORT])
    alone = [model.new_cache(), model.new_cache()]
    wanted = [model.forward([row], one)[0] for row, one in zip(rows, alone, strict=True)]
    wanted += [model.forward([[i]], one)[0] for i, one in zip((3, 4), alone, strict=True)]
    pairs = zip([*first, *second], wanted, strict=True)
    return all(_same(found, right, dtype=model.dtype) for found, right in pairs)


def can_share(model: Model) -> bool:
    """Tell whether a prefix attended to apart gives what it gives in the row."""
    if not model.knows_attention:
        return False
    prefix = [i % model.vocab_size for i in range(5, 5 + _SHARED)]
    rows = _rows(model)
    head = model.new_cache()
    model.forward([prefix], head)
    tensors = [tensor[None, :, :_SHARED].clone() for tensor in head.row(0)]
    cache = model.new_cache()
    cache.window.lengths = [0, 0]
    cache.share([([0, 1], tensors)])
    try:
        found = model.forward(rows, cache, [_SHARED, _SHARED])
    except (TypeError, RuntimeError):
        # The model does not hand through what the attention is to know, or keeps something else
        # in its cache than what it attends to.
        return False
    wanted = [model.forward([prefix + row], model.new_cache())[0] for row in rows]
    pairs = zip(found, wanted, strict=True)
    return all(_same(one, right, dtype=model.dtype) for one, right in pairs)


def _rows(model: Model) -> list[list[int]]:
    size = model.vocab_size
    return [[i % size for i in range(1, 1 + _LONG)], [(7 * i) % size for i in range(1, 1 + _SHORT)]]


def _same(found: Tensor, wanted: Tensor, *, dtype: torch.dtype) -> bool:
    """Compare as far as the arithmetic allows; a wrong position or mask is far beyond it."""
    tolerance = 1e-3 if dtype in (torch.float32, torch.float64) else 0.05
    return float((found - wanted).norm()) <= tolerance * float(wanted.norm())
