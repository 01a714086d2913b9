"""
Probes whether rounding changes a model's answers by expert routing (mixture of experts).

The router sends each token to the experts with the highest scores. Where two are nearly equal, the
rounding of half precision decides, and the answer jumps. Passes of different sizes round
differently, so a cached prefix would give other answers than the same prefix computed together
with the following text; so would `generate()` with a cache.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Model(Protocol):
    """The model under test."""

    dtype: torch.dtype

    @property
    def vocab_size(self) -> int: ...
    @property
    def embeddings(self) -> Any: ...
    def forward_whole(self, token_ids: Sequence[int], *, is_every: bool = False) -> Tensor: ...


_CHOICES = {"topk", "sort", "kthvalue", "argmax", "argmin", "max.dim", "min.dim"}
"""Operations from scores to indexes, such as top-k."""

_NUM_TOKENS = 96
_NUM_TRIES = 8
_ROUNDED = 0.05
"""Maximum distance by rounding from the logits without noise, relative to their norm."""

_MAX_JUMP = 8.0
"""The same in medians of all distances. Without jumps the largest is 2 to 8 medians."""

_FAR = 0.5
"""A distance that exceeds rounding, also where most tokens jump."""


def rounding_decides(model: Model) -> bool:
    """Whether the least noise, of one rounding, changes the logits of a text far more."""
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
    """Records whether an operation selects by scores."""

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
    """Perturb the output of *embeddings* by at most one rounding up or down."""
    generator = torch.Generator().manual_seed(seed)

    def moved(_module: Any, _args: Any, given: Tensor) -> Tensor:
        steps = torch.randint(-1, 2, given.shape, generator=generator).to(given.device)
        return (given.float() * (1 + steps * torch.finfo(given.dtype).eps)).to(given.dtype)

    handle = embeddings.register_forward_hook(moved)
    try:
        yield
    finally:
        handle.remove()
