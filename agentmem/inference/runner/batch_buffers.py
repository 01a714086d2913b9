"""
A batch of rows, and the buffers with their past keys and values.

A run lives as long as its rows: their keys and values are gathered from the pool when they join
and written back when they leave, so that the steps in between copy no blocks.
"""

from collections.abc import Sequence as Items
from dataclasses import dataclass

from torch import Tensor

from agentmem.inference.kv_cache.block_pool import BlockId
from agentmem.inference.kv_cache.block_storage import KVBlockStorage
from agentmem.inference.kv_cache.sequence import Sequence
from agentmem.inference.runner.batch_plan import Room
from agentmem.inference.runner.causal_model import CausalModel
from agentmem.inference.runner.transformers_cache import PagedCache


@dataclass(slots=True, eq=False)
class _Part:
    """Prefix blocks shared by several rows, gathered once."""

    blocks: tuple[BlockId, ...]
    tensors: list[Tensor]  # (1, heads, slots, dim) each


@dataclass(slots=True, eq=False)
class _Row:
    sequence: Sequence
    part: _Part | None
    skipped: int
    """Number of tokens in the shared part, which are not in the row."""


class Run:
    """
    A batch of rows, right-aligned in one set of buffers.

    Args:
        model: the model.
        tensors: the tensors of the blocks.
        sequences: the rows; their computed state is in their blocks.
        shared: for each row, the number of its blocks that it attends to as a shared part.
        counts: for each row, its number of tokens in the first pass.
        room: the size of the buffers; enough for that pass and one block.
    """

    def __init__(  # noqa: PLR0913 - what it is made of
        self,
        model: CausalModel,
        tensors: KVBlockStorage,
        sequences: Items[Sequence],
        *,
        shared: Items[int],
        counts: Items[int],
        room: Room,
    ) -> None:
        self._model = model
        self._tensors = tensors
        self._block_size = tensors.block_size
        self._parts: dict[tuple[BlockId, ...], _Part] = {}
        self._rows: list[_Row] = []
        self._cache = self._open(sequences, shared, counts, room)
        end = self._cache.window.end + max(counts)
        for sequence, num_blocks, count in zip(sequences, shared, counts, strict=True):
            part = self._part(sequence.table[:num_blocks]) if num_blocks else None
            self._rows.append(_Row(sequence, part, num_blocks * self._block_size))
            self._load(len(self._rows) - 1, end=end - count)
        self._share()
        for sequence in sequences:
            sequence.run = self

    @property
    def sequences(self) -> list[Sequence]:
        return [row.sequence for row in self._rows]

    @property
    def room(self) -> Room:
        """The size of its buffers."""
        return Room(rows=self._cache.num_rows, slots=self._cache.num_slots)

    @property
    def num_slots(self) -> int:
        """Slots of its buffers and of its shared parts; each holds one position."""
        parts = sum(len(part.blocks) for part in self._parts.values()) * self._block_size
        return self._cache.num_rows * self._cache.num_slots + parts

    @property
    def end(self) -> int:
        """One past the last slot in use."""
        return self._cache.window.end

    @property
    def longest(self) -> int:
        """Slots of its longest row."""
        return max(self._cache.window.lengths)

    def grow(self, slots: int) -> None:
        """Grow each row to *slots*."""
        self._cache.grow(slots)

    def close(self) -> None:
        """Release all memory; state that is not in blocks is lost."""
        for row in self._rows:
            row.sequence.run = None
        self._rows.clear()
        self._parts.clear()
        self._cache.window.lengths.clear()
        self._cache.release()

    def forward(self, counts: Items[int]) -> Tensor:  # (rows, vocab)
        """Compute the next *counts* tokens of each row; return the logits after the last."""
        sequences = self.sequences
        rows = [
            s.token_ids[s.num_computed : s.num_computed + count]
            for s, count in zip(sequences, counts, strict=True)
        ]
        alone = len(rows) == 1 and not self._cache.is_sharing
        positions = None if alone else [s.num_computed for s in sequences]
        logits = self._model.forward(rows, self._cache, positions)
        for sequence, count in zip(sequences, counts, strict=True):
            sequence.num_computed += count
        return logits

    def agrees(self) -> bool:
        """Return whether the buffers hold all computed tokens of each row."""
        lengths = self._cache.window.lengths
        return len(lengths) == len(self._rows) and all(
            row.skipped + length == row.sequence.num_computed
            for row, length in zip(self._rows, lengths, strict=True)
        )

    def can_take(self, sequence: Sequence) -> bool:
        """Return whether *sequence* fits into the batch, without moving rows."""
        skipped = self._best_part(sequence)[1]
        window = self._cache.window
        own = sequence.num_computed - skipped
        return len(self._rows) < self._cache.num_rows and own <= min(
            window.end, 2 * max(window.lengths)
        )

    def take(self, sequence: Sequence) -> None:
        """Gather one more row, whose keys and values are all in blocks."""
        part, skipped = self._best_part(sequence)
        self._rows.append(_Row(sequence, part, skipped))
        self._cache.window.lengths.append(sequence.num_computed - skipped)
        self._load(len(self._rows) - 1, end=self._cache.window.end)
        sequence.run = self
        self._share()

    def drop(self, sequence: Sequence) -> None:
        """Remove a row; its state that is not in blocks is lost."""
        index, last = self._index(sequence), len(self._rows) - 1
        lengths = self._cache.window.lengths
        if index != last:
            self._cache.move_row(last, index)
            self._rows[index], lengths[index] = self._rows[last], lengths[last]
        self._rows.pop()
        lengths.pop()
        sequence.run = None
        if self._rows:
            self._share()
        else:
            self.close()

    def save(self, sequence: Sequence, *, partial: bool) -> None:
        """Write the missing blocks of *sequence*: whole ones, or also the last one."""
        size = self._block_size
        first = sequence.num_written // size
        end = -(-sequence.num_computed // size) if partial else sequence.num_computed // size
        if end > first:
            index = self._index(sequence)
            start = self._cache.window.end - self._cache.window.lengths[index]
            slot = start + first * size - self._rows[index].skipped
            source = self._cache.row(index, first=slot)
            self._tensors.write(sequence.table[first:end], source, first=0)
            sequence.num_written = min(end * size, sequence.num_computed)

    def _open(
        self, sequences: Items[Sequence], shared: Items[int], counts: Items[int], room: Room
    ) -> PagedCache:
        cache = self._model.new_cache()
        window, layout = cache.window, self._model.layout
        assert layout is not None, "a model with blocks has a layout"
        window.lengths = [
            s.num_computed - num * self._block_size
            for s, num in zip(sequences, shared, strict=True)
        ]
        width = max(had + new for had, new in zip(window.lengths, counts, strict=True))
        window.end = width - max(counts)
        window.margin = self._block_size
        cache.open(layout, rows=room.rows, slots=room.slots)
        return cache

    def _load(self, index: int, *, end: int) -> None:
        """Gather a row's own positions from its blocks, right-aligned to slot *end*."""
        row = self._rows[index]
        num = row.sequence.num_computed
        first, last = row.skipped // self._block_size, -(-num // self._block_size)
        if last > first:
            target = self._cache.row(index, first=end - (num - row.skipped))
            self._tensors.read(row.sequence.table[first:last], target)

    def _part(self, blocks: Items[BlockId]) -> _Part:
        key = tuple(blocks)
        if key not in self._parts:
            self._parts[key] = _Part(key, self._tensors.gather(blocks))
        return self._parts[key]

    def _best_part(self, sequence: Sequence) -> tuple[_Part | None, int]:
        """Return the longest part that is a prefix of *sequence*."""
        fits = [
            part
            for part in self._parts.values()
            if tuple(sequence.table[: len(part.blocks)]) == part.blocks
        ]
        best = max(fits, key=lambda part: len(part.blocks), default=None)
        return best, 0 if best is None else len(best.blocks) * self._block_size

    def _share(self) -> None:
        parts = []
        for key, part in list(self._parts.items()):
            rows = [index for index, row in enumerate(self._rows) if row.part is part]
            if rows:
                parts.append((rows, part.tensors))
            else:
                del self._parts[key]
        self._cache.share(parts)

    def _index(self, sequence: Sequence) -> int:
        return next(i for i, row in enumerate(self._rows) if row.sequence is sequence)
