"""
Probes whether a model gives the same logits for a text in chunks, and for batched rows.

On a few tokens, when the model is loaded: no list of architectures is complete.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from agentmem.inference.runner.transformers_cache import PagedCache


class Model(Protocol):
    """The model under test."""

    dtype: torch.dtype
    attends: bool
    is_bitwise: bool

    @property
    def vocab_size(self) -> int: ...
    @property
    def knows_attention(self) -> bool: ...
    def new_cache(self) -> PagedCache: ...
    def forward_whole(self, token_ids: Sequence[int], *, is_every: bool = False) -> Tensor: ...
    def forward(
        self,
        rows: Sequence[Sequence[int]],
        cache: PagedCache,
        positions: Sequence[int] | None = None,
    ) -> Tensor: ...


_LONG, _SHORT = 40, 9
_SHARED = 24
_EXACT, _ROUNDED = 1e-3, 0.05
"""Tolerances, as a share of the logits' norm."""

_NEARER = 0.25
"""Maximum distance from the right logits, relative to that of a deliberate mistake."""


def can_cut(model: Model, token_ids: Sequence[int], cache: PagedCache) -> bool:
    """
    Whether *token_ids* in chunks give the same logits as the whole text without a cache.

    An encoder loaded as a decoder attends to later tokens, so that its cache of a chunk depends on
    the following text. *cache* has all tokens afterwards.
    """
    first, second = len(token_ids) // 2, len(token_ids) - 1
    found = [
        model.forward([token_ids[start:end]], cache)[0]
        for start, end in ((0, first), (first, second), (second, len(token_ids)))
    ]
    ends = (first, len(token_ids))
    right = [model.forward_whole(token_ids[:end]) for end in ends]
    return _all_right(model, [found[0], found[2]], right, right[::-1])


def can_batch(model: Model) -> bool:
    """Return whether padded rows of different lengths give the same logits as each alone."""
    long, short = _rows(model)
    cache = model.new_cache()
    cache.window.lengths = [0, 0]
    found = [
        *model.forward([long, short], cache, [0, 0]),
        *model.forward([[3], [4]], cache, [_LONG, _SHORT]),
    ]
    of_long, of_short = _alone(model, long, 3), _alone(model, short, 4)
    # The deliberate mistake: padding that is attended to.
    padded = _alone(model, [0] * (_LONG - _SHORT) + short, 4)
    right = [of_long[0], of_short[0], of_long[1], of_short[1]]
    wrong = [of_short[0], padded[0], of_short[1], padded[1]]
    return _all_right(model, found, right, wrong)


def can_attend(model: Model) -> bool:
    """Return whether our attention gives the model's logits, so that a prefix may be shared."""
    if not model.knows_attention:
        return False
    prefix = [i % model.vocab_size for i in range(5, 5 + _SHARED)]
    rows = _rows(model)
    head = model.new_cache()
    model.forward([prefix], head)
    shared = [tensor[None, :, :_SHARED].clone() for tensor in head.row(0)]
    right = [logits for row in rows for logits in _alone(model, prefix + row, 3)]
    # The deliberate mistake: a prefix that is not attended to.
    wrong = [logits for row in rows for logits in _alone(model, row, 3)]
    model.attends = True
    try:
        together = _apart(model, rows, shared)
        # In two passes, of which the second has a past.
        alone = [logits for row in rows for logits in _alone(model, row, 3, behind=prefix)]
    except (TypeError, RuntimeError):
        # The model does not pass the arguments through to attention, or its cache has other
        # tensors than those that it attends to.
        return False
    finally:
        model.attends = False
    return _all_right(model, [*together, *alone], right * 2, wrong * 2)


def _apart(model: Model, rows: list[list[int]], shared: list[Tensor]) -> list[Tensor]:
    """As `_alone`, for all rows batched and with a shared part."""
    cache = model.new_cache()
    cache.window.lengths = [0] * len(rows)
    cache.share([(range(len(rows)), shared)])
    first = model.forward(rows, cache, [_SHARED] * len(rows))
    second = model.forward([[3]] * len(rows), cache, [_SHARED + len(row) for row in rows])
    return [logits for pair in zip(first, second, strict=True) for logits in pair]


def _rows(model: Model) -> list[list[int]]:
    size = model.vocab_size
    return [[i % size for i in range(1, 1 + _LONG)], [(7 * i) % size for i in range(1, 1 + _SHORT)]]


def _alone(
    model: Model, row: list[int], following: int, *, behind: Sequence[int] = ()
) -> list[Tensor]:
    """Return the logits after *row*, which follows *behind*, and after one more token."""
    cache = model.new_cache()
    if behind:
        model.forward([behind], cache)
    return [model.forward([row], cache)[0], model.forward([[following]], cache)[0]]


def _all_right(
    model: Model, found: Iterable[Tensor], right: Iterable[Tensor], wrong: Iterable[Tensor]
) -> bool:
    """
    Compare within the tolerance of the arithmetic.

    In half precision two right results may differ by a tenth, after 30 layers of rounding. So the
    result is also compared with that of a deliberate mistake: it must be much closer to right.
    """
    is_exact = model.dtype in (torch.float32, torch.float64)
    for one, good, bad in zip(found, right, wrong, strict=True):
        model.is_bitwise = model.is_bitwise and torch.equal(one, good)
        tolerance = (_EXACT if is_exact else _ROUNDED) * float(good.norm())
        if not is_exact:
            tolerance = max(tolerance, _NEARER * float((bad - good).norm()))
        if float((one - good).norm()) > tolerance:
            return False
    return True
