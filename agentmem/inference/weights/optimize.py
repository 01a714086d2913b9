"""
A model's layers exchanged for ones that compute the same faster on this machine's CPU.

Nothing is looked up in a list of architectures: a layer is exchanged where that works here, and a
norm where it gives the same numbers. Whatever does not stays as it is.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentmem.errors import ConfigError
from agentmem.inference.weights.packed_linear import GROUP_SIZE, PackedLinear, QuantizedLinear

_BITS = {"int8": 8, "int4": 4}
_WHOLE = 16
"""As many bits as the weights have: they are not quantised."""


@torch.inference_mode()
def optimize_for_cpu(module: nn.Module, *, weights: str, device: torch.device) -> None:
    """
    Exchange layers of *module*, in place.

    Args:
        module: a model on *device*, in evaluation mode.
        weights: as in `InferenceConfig`.
        device: where it is.

    Raises:
        ConfigError: such weights cannot be had on the device.
    """
    if device.type != "cpu":
        if weights in _BITS:
            raise ConfigError(
                f"weights {weights!r} are for models on the CPU, and this one is on {device}: "
                "use auto or plain"
            )
        return
    if weights == "plain":
        return
    bits = _BITS.get(weights, _WHOLE)
    head = _head(module)
    made: dict[nn.Module, nn.Module] = {}
    for parent, name, child in list(_children(module)):
        if child not in made:
            if type(child) is nn.Linear:
                # The largest matrix, and the one whose errors nothing evens out: never 4 bits.
                made[child] = _linear(child, max(bits, 8) if child is head else bits)
            elif _is_rms_norm(child):
                made[child] = FusedRMSNorm(child)
        if child in made:
            setattr(parent, name, made[child])


class FusedRMSNorm(nn.Module):
    """Does what *norm* does in one pass over the numbers, in place of seven."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.weight = norm.weight
        self.eps = _eps(norm)

    def forward(self, x: Tensor) -> Tensor:  # (..., features), as given
        weight = self.weight
        assert isinstance(weight, Tensor), "it is a parameter"
        same = functional.rms_norm(x.to(weight.dtype), weight.shape, weight, self.eps)
        return same.to(x.dtype)


def _children(module: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Module]]:
    for parent in module.modules():
        for name, child in parent.named_children():
            yield parent, name, child


def _head(module: nn.Module) -> object:
    find = getattr(module, "get_output_embeddings", lambda: None)
    return find()


def _linear(linear: nn.Linear, bits: int) -> nn.Module:
    """Return the fastest form of *linear* with so many bits a weight that there is here."""
    for num in (bits, _WHOLE):
        try:
            if num == _WHOLE:
                return PackedLinear(linear)
            # The kernels look at whole groups of inputs, and beyond the last one if it is cut.
            if linear.in_features % GROUP_SIZE == 0:
                return QuantizedLinear(linear, bits=num)
        except RuntimeError:
            # No such kernel here for this dtype or these sizes.
            continue
    return linear


def _eps(norm: nn.Module) -> float | None:
    for name in ("variance_epsilon", "eps", "epsilon"):
        value = getattr(norm, name, None)
        if isinstance(value, float):
            return value
    return None


def _is_rms_norm(norm: nn.Module) -> bool:
    """Try whether *norm* is the plain root mean square norm, on numbers made for it."""
    weight, eps = getattr(norm, "weight", None), _eps(norm)
    if not type(norm).__name__.endswith("RMSNorm") or eps is None:
        return False
    if not isinstance(weight, Tensor) or weight.dim() != 1 or list(norm.children()):
        return False
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn((4, len(weight)), generator=generator).to(weight.dtype)
    tolerance = 1e-5 if weight.dtype == torch.float32 else 1e-2
    # Where the numbers are as small as epsilon's root, a wrong epsilon shows.
    for x in (numbers, numbers * eps**0.5):
        try:
            wanted = norm(x)
        except (TypeError, ValueError, RuntimeError):
            return False
        found = FusedRMSNorm(norm)(x)
        if found.dtype != wanted.dtype or found.shape != wanted.shape:
            return False
        if float((found - wanted).norm()) > tolerance * float(wanted.norm()):
            return False
    return True
