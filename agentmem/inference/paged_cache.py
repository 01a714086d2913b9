"""
One sequence's keys and values as a transformers Cache.

They are gathered from the block pool once, when the sequence starts, into a run buffer with
room to spare; the model's forward passes append in place, and whole blocks are written back
when they are published. The masks, sliding windows included, stay the model library's work:
each layer keeps all positions, and the mask hides those outside the window.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from agentmem.inference.block_pool import BlockId
from agentmem.inference.kv_tensors import KVLayout, KVShape, KVTensors

_SPARE_SLOTS = 256


class RunLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # the library is untyped
    """Keys and values of one layer in buffers that later positions are appended to."""

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.length = 0
        self.buffers: tuple[Tensor, Tensor] | None = None  # (1, heads, slots, dim) each

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Take room for these states and some more."""
        self.reserve(key_states, value_states, key_states.shape[-2] + _SPARE_SLOTS)

    def reserve(self, keys: Tensor, values: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """Take zeroed buffers of *slots* positions for such states; keep what is there."""
        grown = tuple(
            torch.zeros(
                (*like.shape[:-2], slots, like.shape[-1]), dtype=like.dtype, device=like.device
            )
            for like in (keys, values)
        )
        for new, old in zip(grown, self.buffers or (), strict=False):
            new[..., : self.length, :] = old[..., : self.length, :]
        self.buffers = (grown[0], grown[1])
        self.is_initialized = True
        return self.buffers

    def update(
        self,
        key_states: Tensor,  # (1, heads, new, dim)
        value_states: Tensor,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Append the new states and give all of them."""
        end = self.length + key_states.shape[-2]
        buffers = self.buffers
        if buffers is None or end > buffers[0].shape[-2]:
            buffers = self.reserve(key_states, value_states, end + max(_SPARE_SLOTS, end // 2))
        keys, values = buffers
        keys[..., self.length : end, :] = key_states
        values[..., self.length : end, :] = value_states
        self.length = end
        return keys[..., :end, :], values[..., :end, :]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return -1


class PagedCache(Cache):
    """
    The run buffers of one sequence.

    Args:
        layers: one per layer of the model; layers that store nothing keep their own class.
    """

    def __init__(self, layers: Sequence[Any]) -> None:
        super().__init__(layers=list(layers))
        self._run_layers = [layer for layer in layers if isinstance(layer, RunLayer)]

    def layout(self) -> KVLayout:
        """
        Tell what a token leaves behind; known once a forward pass has run.

        Raises:
            ValueError: it cannot be put in rows of one dtype on one device.
        """
        shapes, kinds = [], set()
        if any(layer.buffers is None for layer in self._run_layers):
            raise ValueError("a layer that should store keys and values stores none")
        for tensor in self._tensors():
            shapes.append(KVShape(heads=tensor.shape[0], dim=tensor.shape[-1]))
            kinds.add((tensor.dtype, tensor.device))
        if len(kinds) != 1:
            raise ValueError(f"layers differ in dtype or device: {sorted(map(str, kinds))}")
        [(dtype, device)] = kinds
        return KVLayout(shapes=tuple(shapes), dtype=dtype, device=device)

    def load(
        self, tensors: KVTensors, layout: KVLayout, blocks: Sequence[BlockId], *, length: int
    ) -> None:
        """Fill the empty buffers with *blocks*, which hold *length* positions."""
        shapes = iter(layout.shapes)
        for layer in self._run_layers:
            pair = [
                torch.empty((1, s.heads, 0, s.dim), dtype=layout.dtype, device=layout.device)
                for s in (next(shapes), next(shapes))
            ]
            layer.reserve(pair[0], pair[1], length + _SPARE_SLOTS)
            layer.length = length
        tensors.read(blocks, self._tensors())

    def save(self, tensors: KVTensors, blocks: Sequence[BlockId], *, first: int) -> None:
        """Write whole blocks, from the sequence's block *first* on, to *blocks*."""
        tensors.write(blocks, self._tensors(), first=first)

    def _tensors(self) -> list[Tensor]:
        """Give keys and values in turn, layer after layer, of layers that have any."""
        pairs = [layer.buffers for layer in self._run_layers if layer.buffers is not None]
        return [tensor[0] for pair in pairs for tensor in pair]  # (heads, slots, dim) each
