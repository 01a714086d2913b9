"""
Whether rounding decides what a model answers, since it chooses by numbers that are nearly equal.

A mixture of experts sends each token to those that its router likes best. Where two are liked
nearly as well, the rounding of half precision decides, and what is answered jumps. Passes of other
sizes round in other ways, so there a prefix from the cache would give other answers than the same
prefix computed along with what follows; so would `generate()` with a cache that it has kept.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Model(Protocol):
    """What is tried."""

    dtype: torch.dtype

    @property
    def vocab_size(self) -> int: ...
    @property
    def embeddings(self) -> Any: ...
    def forward_whole(self, token_ids: Sequence[int], *, is_every: bool = False) -> Tensor: ...


_CHOICES = {"topk", "sort", "kthvalue", "argmax", "argmin", "max.dim", "min.dim"}
"""Operations that turn numbers into places, by which others are chosen."""

_NUM_TOKENS = 96
_NUM_TRIES = 8
_ROUNDED = 0.05
"""Distance from the logits without noise, as a share of their norm, that rounding may make."""

_MAX_JUMP = 8.0
"""The same in medians of all distances. Where nothing jumps, the largest is 2 to 8 of them."""

_FAR = 0.5
"""A distance that is not a rounding any more, also where most tokens jump."""


def rounding_decides(model: Model) -> bool:
    """Whether a text with the least noise, of one rounding, is answered far differently."""
    token_ids = [1 + (37 * i * i + 11 * i) % (model.vocab_size - 1) for i in range(_NUM_TOKENS)]
    if not _chooses(model, token_ids[:8]):
        return False
    right = model.forward_whole(token_ids, is_every=True)  # (tokens, vocab)
    distances = []
    for seed in range(_NUM_TRIES):
        with _noise(model.embeddings, seed):
            found = model.forward_whole(token_ids, is_every=True)
        distances.append((found - right).norm(dim=-1) / right.norm(dim=-1).clamp_min(1e-9))
    all_distances = torch.cat(distances)
    limit = min(max(_ROUNDED, _MAX_JUMP * float(all_distances.median())), _FAR)
    return float(all_distances.max()) > limit


class _Choices(TorchDispatchMode):  # type: ignore[no-untyped-call]  # the library is untyped
    """Notes whether something is chosen by numbers while it is on."""

    found: bool = False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.name().partition("::")[2]
        self.found = self.found or name in _CHOICES or name.partition(".")[0] in _CHOICES
        return func(*args, **(kwargs or {}))


def _chooses(model: Model, token_ids: Sequence[int]) -> bool:
    choices = _Choices()  # type: ignore[no-untyped-call]  # as above
    with choices:
        model.forward_whole(token_ids)
    return choices.found


@contextmanager
def _noise(embeddings: Any, seed: int) -> Iterator[None]:
    """Move what *embeddings* gives by at most one rounding up or down."""
    generator = torch.Generator().manual_seed(seed)

    def moved(_module: Any, _args: Any, given: Tensor) -> Tensor:
        steps = torch.randint(-1, 2, given.shape, generator=generator).to(given.device)
        return (given.float() * (1 + steps * torch.finfo(given.dtype).eps)).to(given.dtype)

    handle = embeddings.register_forward_hook(moved)
    try:
        yield
    finally:
        handle.remove()
