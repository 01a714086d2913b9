"""
Linear layers for the CPU with packed weights.

A plain layer packs its weights on each call, which for a few rows takes longer than the product
itself: packed once, a product with one row takes a half to a quarter of the time, with the same
result except for the order of summation.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

GROUP_SIZE = 32
"""Weights per scale in int4, as in the blocks of a Q4_1 file (ggml's quantization)."""

MAX_QUANTIZED_ROWS = 4
"""Above this the packed weights are as fast as the quantized ones."""

Quantized = tuple[Tensor | int, ...]
"""Arguments of a kernel for quantized weights after the rows."""


class PackedLinear(nn.Module):
    """
    Equivalent to *linear*, with packed weights. The plain ones are released.

    Raises:
        RuntimeError: the CPU has no such kernel for the dtype.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self._multiply = _kernel("mkldnn::_linear_pointwise")
        self._packed: Tensor = _kernel("mkldnn::_reorder_linear_weight")(linear.weight.detach())

    @property
    def weight(self) -> Tensor:
        """The plain weights, (out, in), unpacked on each access."""
        return self._packed.to_dense()

    def forward(self, x: Tensor) -> Tensor:  # (..., in) -> (..., out)
        out: Tensor = self._multiply(x, self._packed, self.bias, "none", [], "")
        return out


class QuantizedLinear(nn.Module):
    """
    Quantized form of *linear*, with weights of 8 or 4 bits for a few rows.

    For more rows, such as prompts, the full weights are kept too: quantized ones are faster to
    read, but slower to compute with.

    Args:
        linear: the plain layer.
        bits: 8, with one scale per output; or 4, with a scale and an offset per 32 weights.
            The inputs must be a multiple of 32, or the kernels read out of bounds.

    Raises:
        RuntimeError: the CPU has no such kernel for the dtype or these sizes.
    """

    def __init__(self, linear: nn.Linear, *, bits: int) -> None:
        super().__init__()
        assert linear.in_features % GROUP_SIZE == 0, "the kernels take whole groups"
        self._many = PackedLinear(linear)
        self.bits = bits
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        name, quantize = _FORMS[bits]
        self._multiply, self._quantized = _kernel(name), quantize(linear.weight.detach().float())
        self._few(linear.weight.new_zeros((1, self.in_features)))

    @property
    def weight(self) -> Tensor:
        """The plain weights, (out, in), unpacked on each access."""
        return self._many.weight

    def forward(self, x: Tensor) -> Tensor:  # (..., in) -> (..., out)
        rows = x.reshape(-1, self.in_features)
        if len(rows) > MAX_QUANTIZED_ROWS:
            many: Tensor = self._many(x)
            return many
        return self._few(rows).view(*x.shape[:-1], self.out_features)

    def _few(self, rows: Tensor) -> Tensor:  # (rows, in) -> (rows, out)
        # The kernels are optimized for bfloat16; in float32 they take ten times as long.
        out: Tensor = self._multiply(rows.to(torch.bfloat16), *self._quantized).to(rows.dtype)
        return out if self.bias is None else out + self.bias


def _kernel(name: str) -> Callable[..., Any]:
    """
    Return one of torch's CPU kernels, which have private names only.

    Raises:
        RuntimeError: this build of torch has no such kernel.
    """
    space, _, operator = name.partition("::")
    try:
        kernel: Callable[..., Any] = getattr(getattr(torch.ops, space), operator)
    except AttributeError as error:
        raise RuntimeError(f"this build of torch has no kernel {name}") from error
    return kernel


def _int8(weight: Tensor) -> Quantized:  # (out, in), (out,)
    scales = weight.abs().amax(-1).clamp_(min=1e-12) / 127
    scales = scales.to(torch.bfloat16)
    values = torch.round(weight / scales.float()[:, None]).clamp_(-127, 127)
    return values.to(torch.int8), scales


def _int4(weight: Tensor) -> Quantized:
    """Return each weight as ``scale * (value - 8) + offset``, values from 0 to 15."""
    groups = weight.view(weight.shape[0], -1, GROUP_SIZE)  # (out, groups, GROUP_SIZE)
    low, high = groups.amin(-1), groups.amax(-1)
    scales = ((high - low).clamp_(min=1e-12) / 15).to(torch.bfloat16)
    offsets = (low + 8 * scales.float()).to(torch.bfloat16)
    values = torch.round((groups - offsets.float()[..., None]) / scales.float()[..., None]) + 8
    values = values.clamp_(0, 15).to(torch.int32).view(weight.shape)
    packed = _kernel("aten::_convert_weight_to_int4pack_for_cpu")(values, 1)
    return packed, GROUP_SIZE, torch.stack([scales, offsets], -1).transpose(0, 1).contiguous()


_FORMS: dict[int, tuple[str, Callable[[Tensor], Quantized]]] = {
    8: ("aten::_weight_int8pack_mm", _int8),
    4: ("aten::_weight_int4pack_mm_for_cpu", _int4),
}
"""By bits: the kernel, and the function that quantizes weights for it."""
