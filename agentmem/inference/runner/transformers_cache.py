"""
The keys and values of one run, as a transformers Cache.

They are gathered from the block pool once, when a row joins, into a buffer with spare slots; the
model's forward passes append in place, and blocks are written back when they are published or the
row leaves. Rows are right-aligned: all end at the same slot, and the slots left of a shorter row
are masked. Masks, sliding windows included, are made by transformers: each layer stores all
positions, and the mask hides those outside the window.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from agentmem.inference.kv_cache.block_storage import KVLayout, KVShape

_SPARE_SLOTS = 256

SharedPart = tuple[Tensor | None, Tensor, Tensor]
"""Its rows (None: all), and keys and values of positions before those in the buffer."""


@dataclass(slots=True)
class Window:
    """The slots of the buffers in use; one for all layers of a cache."""

    end: int = 0
    """One past the last slot in use; every row ends there."""

    lengths: list[int] = field(default_factory=lambda: [0])
    """Slots of each row, its newest last."""

    width: int = 0
    """Slots of the longest row after the next pass."""

    num_new: int = 0
    """Slots that the next pass appends."""

    fresh: Tensor | None = None
    """Mask of real tokens in the next pass, if there is padding.  # (rows, 1, new, 1)"""

    is_even: bool = True
    """Whether all rows have one length after the next pass."""

    margin: int = 0
    """Spare slots after the last one, so that whole blocks can be read."""


class RunLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]  # the library is untyped
    """Keys and values of one layer, in append-only buffers."""

    is_sliding = False

    def __init__(self, window: Window) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.window = window
        self.buffers: tuple[Tensor, Tensor] | None = None  # (rows or more, heads, slots, dim) each
        self.shared: list[SharedPart] = []

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate buffers for these states, with spare slots."""
        self.reserve(key_states, value_states, key_states.shape[-2] + _SPARE_SLOTS)

    def reserve(self, keys: Tensor, values: Tensor, slots: int) -> tuple[Tensor, Tensor]:
        """Allocate zeroed buffers of *slots* positions for such states; keep the content."""
        old = self.buffers
        rows = keys.shape[0] if old is None else old[0].shape[0]
        # Zeroed: a NaN in a masked slot would still propagate through attention.
        new = tuple(
            torch.zeros(
                (rows, like.shape[1], slots, like.shape[-1]), dtype=like.dtype, device=like.device
            )
            for like in (keys, values)
        )
        for target, source in zip(new, old or (), strict=False):
            target[..., : source.shape[-2], :] = source
        self.buffers = (new[0], new[1])
        self.is_initialized = True
        return self.buffers

    def update(
        self,
        key_states: Tensor,  # (rows, heads, new, dim)
        value_states: Tensor,
        *_args: Any,
        **_kwargs: Any,
    ) -> tuple[Tensor, Tensor]:
        """Append the new states and return all of them."""
        rows, window = key_states.shape[0], self.window
        end = window.end + key_states.shape[-2]
        buffers = self.buffers
        if buffers is None or end + window.margin > buffers[0].shape[-2]:
            slots = end + window.margin + max(_SPARE_SLOTS, end // 2)
            buffers = self.reserve(key_states, value_states, slots)
        views = []
        for buffer, new in zip(buffers, (key_states, value_states), strict=True):
            target = buffer[:rows, :, window.end : end]
            # The padding of a shorter row may overlap its past.
            fresh = window.fresh
            target.copy_(new if fresh is None else torch.where(fresh, new, target))
            views.append(buffer[:rows, :, end - window.width : end])
        return views[0], views[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return max(self.window.width, query_length), 0

    def get_seq_length(self) -> int:
        return self.window.width - self.window.num_new

    def get_max_length(self) -> int:
        return -1


class PagedCache(Cache):
    """
    The KV buffers of some rows.

    Args:
        layers: one per layer of the model; layers without KV keep their own class.
        window: state that is shared by the layers.
        device: the device of the model.
    """

    def __init__(self, layers: Sequence[Any], window: Window, device: torch.device) -> None:
        super().__init__(layers=list(layers))
        self.window = window
        self._device = device
        self._run_layers = [layer for layer in layers if isinstance(layer, RunLayer)]

    def layout(self) -> KVLayout:
        """
        Return the KV layout of a token; known after the first forward pass.

        Raises:
            ValueError: it cannot be stored in rows of one dtype on one device.
        """
        shapes, kinds = [], set()
        if any(layer.buffers is None for layer in self._run_layers):
            raise ValueError("a layer that should store keys and values stores none")
        for tensor in self.row(0):
            shapes.append(KVShape(heads=tensor.shape[0], dim=tensor.shape[-1]))
            kinds.add((tensor.dtype, tensor.device))
        if len(kinds) != 1:
            raise ValueError(f"layers differ in dtype or device: {sorted(map(str, kinds))}")
        [(dtype, device)] = kinds
        return KVLayout(shapes=tuple(shapes), dtype=dtype, device=device)

    def open(self, layout: KVLayout, *, rows: int, slots: int) -> None:
        """Allocate zeroed buffers for *rows* rows of *slots* positions."""
        shapes = iter(layout.shapes)
        for layer in self._run_layers:
            like = [
                torch.empty((rows, s.heads, 0, s.dim), dtype=layout.dtype, device=layout.device)
                for s in (next(shapes), next(shapes))
            ]
            layer.reserve(like[0], like[1], slots)

    def grow(self, slots: int) -> None:
        """Grow each row to *slots* positions, and keep the content."""
        for layer in self._run_layers:
            if layer.buffers is not None:
                layer.reserve(*layer.buffers, slots)

    def release(self) -> None:
        """Release all memory, even while this cache is still referenced."""
        for layer in self._run_layers:
            layer.buffers, layer.shared = None, []

    @property
    def num_rows(self) -> int:
        """Capacity in rows."""
        buffers = self._run_layers[0].buffers if self._run_layers else None
        return 0 if buffers is None else buffers[0].shape[0]

    @property
    def num_slots(self) -> int:
        """Capacity in positions per row."""
        buffers = self._run_layers[0].buffers if self._run_layers else None
        return 0 if buffers is None else buffers[0].shape[2]

    def row(self, index: int, *, first: int = 0) -> list[Tensor]:
        """Return keys and values alternating, layer by layer, from slot *first* of a row on."""
        pairs = [layer.buffers for layer in self._run_layers if layer.buffers is not None]
        return [
            tensor[index, :, first:] for pair in pairs for tensor in pair
        ]  # (heads, slots, dim)

    def move_row(self, source: int, target: int) -> None:
        """Copy one row over another."""
        end = self.window.end
        start = end - self.window.lengths[source]
        for layer in self._run_layers:
            for buffer in layer.buffers or ():
                buffer[target, :, start:end] = buffer[source, :, start:end]

    def share(self, parts: Sequence[tuple[Sequence[int], Sequence[Tensor]]]) -> None:
        """
        Set the shared parts: positions before those in the buffer that rows attend to.

        Args:
            parts: rows, and keys and values alternating, layer by layer.  # (1, heads, slots, dim)
        """
        everybody = list(range(len(self.window.lengths)))
        for layer in self._run_layers:
            layer.shared = []
        for rows, tensors in parts:
            pairs = iter(tensors)
            index = None if list(rows) == everybody else torch.tensor(rows, device=self._device)
            for layer in self._run_layers:
                layer.shared.append((index, next(pairs), next(pairs)))

    @property
    def is_sharing(self) -> bool:
        """Return whether a row attends to a shared part."""
        return any(layer.shared for layer in self._run_layers)

    def begin(self, counts: Sequence[int]) -> Tensor | None:
        """
        Prepare a pass over *counts* new tokens of each row, right-aligned.

        Return its padding mask; None without padding.  # (rows, slots), 1 for a token
        """
        window = self.window
        lengths = [had + new for had, new in zip(window.lengths, counts, strict=True)]
        window.width, window.num_new, window.fresh = max(lengths), max(counts), None
        if min(counts) < window.num_new:
            fresh = _right_aligned(counts, window.num_new)
            window.fresh = fresh[:, None, :, None].to(self._device)
        window.is_even = min(lengths) == window.width
        return None if window.is_even else _right_aligned(lengths, window.width)

    def commit(self, counts: Sequence[int]) -> None:
        """Commit the slots that a pass has appended; without this they are discarded."""
        window = self.window
        window.fresh = None
        window.end += window.num_new
        window.num_new = 0
        window.lengths = [had + new for had, new in zip(window.lengths, counts, strict=True)]


def _right_aligned(counts: Sequence[int], width: int) -> Tensor:  # (rows, width)
    """Return a mask of the last *counts* places of each row."""
    return torch.arange(width) >= width - torch.tensor(counts)[:, None]
