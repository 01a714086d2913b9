"""
Replace layers of a model by equivalent ones that are faster on this machine's CPU.

Without a list of architectures: a layer is replaced where the kernel works here, and a norm where
it gives the same numbers. Other layers are unchanged.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional

from agentmem.errors import ConfigError
from agentmem.inference.weights.packed_linear import GROUP_SIZE, PackedLinear, QuantizedLinear

_BITS = {"int8": 8, "int4": 4}
_WHOLE = 16
"""The bits of the weights themselves: not quantized."""


@torch.inference_mode()
def optimize_for_cpu(module: nn.Module, *, weights: str, device: torch.device) -> None:
    """
    Replace layers of *module*, in place.

    Args:
        module: a model on *device*, in evaluation mode.
        weights: as in `InferenceConfig`.
        device: its device.

    Raises:
        ConfigError: the device does not support *weights*.
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
                # The largest matrix, and the one whose errors are not averaged: never 4 bits.
                made[child] = _linear(child, max(bits, 8) if child is head else bits)
            elif _is_rms_norm(child):
                made[child] = FusedRMSNorm(child)
        if child in made:
            setattr(parent, name, made[child])


class FusedRMSNorm(nn.Module):
    """Equivalent to *norm*, fused into one pass over the values instead of seven."""

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
    """Return the fastest available form of *linear* with so many bits per weight."""
    for num in (bits, _WHOLE):
        try:
            if num == _WHOLE:
                return PackedLinear(linear)
            # The kernels read whole groups of inputs, past the end of an incomplete one.
            if linear.in_features % GROUP_SIZE == 0:
                return QuantizedLinear(linear, bits=num)
        except RuntimeError:
            # No such kernel for this dtype or these sizes.
            continue
    return linear


def _eps(norm: nn.Module) -> float | None:
    for name in ("variance_epsilon", "eps", "epsilon"):
        value = getattr(norm, name, None)
        if isinstance(value, float):
            return value
    return None


def _is_rms_norm(norm: nn.Module) -> bool:
    """Probe whether *norm* is plain RMSNorm, on synthetic values."""
    weight, eps = getattr(norm, "weight", None), _eps(norm)
    if not type(norm).__name__.endswith("RMSNorm") or eps is None:
        return False
    if not isinstance(weight, Tensor) or weight.dim() != 1 or list(norm.children()):
        return False
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn((4, len(weight)), generator=generator).to(weight.dtype)
    tolerance = 1e-5 if weight.dtype == torch.float32 else 1e-2
    # A wrong epsilon shows where the values are as small as its square root.
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
