"""
The tensors of KV blocks: one row per block, with all layers.

Memory is allocated in slabs, on the first write to a block of a slab, so the pool grows without
copying and never past its limit.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentmem.inference.kv_cache.block_pool import BlockId

SLAB_BYTES = 32 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """Keys or values of one layer, per token."""

    heads: int
    dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KVLayout:
    """
    The KV layout of a token: keys and values alternating, layer by layer.

    Layers without KV have no shapes here.
    """

    shapes: tuple[KVShape, ...]
    dtype: torch.dtype
    device: torch.device

    def block_bytes(self, block_size: int) -> int:
        """Bytes of one block over all layers."""
        return block_size * sum(s.heads * s.dim for s in self.shapes) * self.dtype.itemsize


class KVBlockStorage:
    """Zeroed memory for *num_blocks* blocks and the null block, allocated on demand."""

    def __init__(self, layout: KVLayout, *, block_size: int, num_blocks: int) -> None:
        self._layout = layout
        self.block_size = block_size
        self._row = sum(s.heads * s.dim for s in layout.shapes) * block_size
        self._num_rows = num_blocks + 1
        self._slab_rows = min(self._num_rows, max(1, SLAB_BYTES // layout.block_bytes(block_size)))
        self._slabs: dict[int, Tensor] = {}

    @property
    def num_bytes(self) -> int:
        """Bytes allocated so far."""
        return sum(slab.numel() * slab.element_size() for slab in self._slabs.values())

    @property
    def max_bytes(self) -> int:
        """Bytes when every block has been used."""
        return self._num_rows * self._layout.block_bytes(self.block_size)

    @property
    def slot_bytes(self) -> int:
        """Bytes of one token position."""
        return self._layout.block_bytes(self.block_size) // self.block_size

    def read(self, blocks: Sequence[BlockId], into: Sequence[Tensor]) -> None:
        """
        Copy *blocks*, in order, to the beginning of each tensor of *into*.

        Args:
            blocks: the beginning of a sequence's block table.
            into: one tensor per shape of the layout.  # (heads, slots, dim)
        """
        for slab, rows, first in self._groups(blocks):
            data = self._slab(slab).index_select(0, rows)  # (blocks, row)
            for part, target in zip(self._parts(data), into, strict=True):
                self._slots(target, first, len(rows)).copy_(part)

    def gather(self, blocks: Sequence[BlockId]) -> list[Tensor]:
        """Return the positions of *blocks*, one tensor (1, heads, slots, dim) per shape."""
        slots = len(blocks) * self.block_size
        layout = self._layout
        out = [
            torch.empty((1, s.heads, slots, s.dim), dtype=layout.dtype, device=layout.device)
            for s in layout.shapes
        ]
        self.read(blocks, [tensor[0] for tensor in out])
        return out

    def copy(self, source: BlockId, target: BlockId) -> None:
        """Copy one block over another."""
        taken = self._slab(source // self._slab_rows)
        row = taken[source % self._slab_rows]
        self._slab(target // self._slab_rows)[target % self._slab_rows] = row

    def write(self, blocks: Sequence[BlockId], source: Sequence[Tensor], *, first: int) -> None:
        """
        Copy whole blocks from *source* into *blocks*.

        Args:
            blocks: the destination.
            source: one tensor per shape of the layout.  # (heads, slots, dim)
            first: index of the block of *source* for the first of *blocks*.
        """
        for slab, rows, offset in self._groups(blocks):
            data = torch.empty(
                (len(rows), self._row), dtype=self._layout.dtype, device=self._layout.device
            )
            for part, tensor in zip(self._parts(data), source, strict=True):
                part.copy_(self._slots(tensor, first + offset, len(rows)))
            self._slab(slab).index_copy_(0, rows, data)

    def erase(self, blocks: Sequence[BlockId]) -> None:
        """Zero *blocks*; unallocated memory stays unallocated."""
        for slab, rows, _ in self._groups(blocks):
            if slab in self._slabs:
                self._slabs[slab].index_fill_(0, rows, 0)

    def release(self) -> None:
        """Release all memory."""
        self._slabs.clear()

    def _slab(self, index: int) -> Tensor:
        if index not in self._slabs:
            rows = min(self._slab_rows, self._num_rows - index * self._slab_rows)
            # Zeroed: a NaN in a masked slot would still propagate through attention.
            self._slabs[index] = torch.zeros(
                (rows, self._row), dtype=self._layout.dtype, device=self._layout.device
            )
        return self._slabs[index]

    def _groups(self, blocks: Sequence[BlockId]) -> Iterator[tuple[int, Tensor, int]]:
        """Split *blocks* into runs within one slab: slab, its rows, index of the first block."""
        start = 0
        for end in range(1, len(blocks) + 1):
            slab = blocks[start] // self._slab_rows
            if end == len(blocks) or blocks[end] // self._slab_rows != slab:
                rows = [block % self._slab_rows for block in blocks[start:end]]
                yield slab, torch.tensor(rows, device=self._layout.device), start
                start = end

    def _parts(self, data: Tensor) -> Iterator[Tensor]:
        """Return views of rows, one tensor per shape."""
        offset = 0
        for shape in self._layout.shapes:
            size = shape.heads * self.block_size * shape.dim
            yield data[:, offset : offset + size].view(
                -1, shape.heads, self.block_size, shape.dim
            )  # (blocks, heads, block_size, dim)
            offset += size

    def _slots(self, tensor: Tensor, first: int, count: int) -> Tensor:
        """Return a view of the slots of *count* blocks, from block *first*, as rows of blocks."""
        size = self.block_size
        run = tensor[:, first * size : (first + count) * size]  # (heads, count * size, dim)
        blocks = run.view(run.shape[0], count, size, run.shape[2])
        return blocks.transpose(0, 1)  # (blocks, heads, block_size, dim)
