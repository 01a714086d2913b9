"""Batches sequences into runs and computes their next tokens; the only module to move tensors."""

from collections.abc import Iterable
from collections.abc import Sequence as Items

from torch import Tensor

from agentmem.inference.kv_cache.block_pool import BlockId
from agentmem.inference.kv_cache.block_storage import KVBlockStorage
from agentmem.inference.kv_cache.sequence import Batch, Sequence
from agentmem.inference.runner.batch_buffers import Run
from agentmem.inference.runner.batch_plan import (
    choose_room,
    grown,
    least_slots,
    shared_prefixes,
    split_by_length,
)
from agentmem.inference.runner.buffer_memory import RunMemory
from agentmem.inference.runner.causal_model import CausalModel, OwnCache
from agentmem.inference.runner.memory_plan import MemoryPlan
from agentmem.inference.runner.own_size import num_bytes

_MAX_STALE = 2
"""Ratio of used slots to the longest row above which rows are gathered again."""


class Runner:
    """
    The forward passes of one model.

    Args:
        model: the model.
        tensors: the tensors of its blocks; None for a model without block reuse.
        plan: the maximum size of the buffers of all runs, or of the model's own caches.
    """

    def __init__(
        self, model: CausalModel, tensors: KVBlockStorage | None, *, plan: MemoryPlan
    ) -> None:
        self._model = model
        self._tensors = tensors
        self._memory = RunMemory(plan.run_slots)
        self._own_bytes = plan.own_bytes
        self.in_pass = False
        """Whether a forward pass was started last, and has not ended."""

    def num_bytes(self, running: Iterable[Sequence]) -> int:
        """Return the bytes of the buffers of all runs, or of the model's caches of *running*."""
        if self._tensors is not None:
            return self._memory.num_slots * self._tensors.slot_bytes
        caches = [sequence.own_cache for sequence in running]
        return sum(num_bytes(cache.state) for cache in caches if cache is not None)

    @property
    def max_bytes(self) -> int:
        """Their maximum bytes."""
        slot_bytes = 0 if self._tensors is None else self._tensors.slot_bytes
        return self._own_bytes if self._tensors is None else self._memory.limit * slot_bytes

    def groups(self, sequences: Items[Sequence]) -> list[list[Sequence]]:
        """Split decoding *sequences* into batches."""
        if self._tensors is None or not self._model.can_batch:
            return [[sequence] for sequence in sequences]
        if len(sequences) < 2 or _in_one_run(sequences):  # noqa: PLR2004 - nothing to split
            return [list(sequences)] if sequences else []
        lengths = [sequence.num_computed for sequence in sequences]
        groups: list[list[Sequence]] = []
        for group, slots in self._planned(sequences, lengths):
            batch = [(sequences[i], 1) for i in group]
            parts = [batch] if slots <= self._memory.limit else self.parts(batch)
            groups += [[sequence for sequence, _ in part] for part in parts]
        return groups

    def parts(self, batch: Batch) -> list[Batch]:
        """Split *batch* into passes that the model supports and whose buffers fit the memory."""
        if self._tensors is None or not self._model.can_batch:
            return [[item] for item in batch]
        if len(batch) == 1 or self._least(batch) <= self._memory.limit:
            return [batch]
        parts: list[Batch] = []
        for item in batch:
            if parts and self._least([*parts[-1], item]) <= self._memory.limit:
                parts[-1].append(item)
            else:
                parts.append([item])
        return parts

    def fits(self, sequences: Items[Sequence], lengths: Items[int]) -> bool:
        """
        Whether the buffers of all *sequences* fit the memory for runs together.

        A single one always does, since admission rejects longer requests.

        Args:
            sequences: the concurrent sequences.
            lengths: the number of tokens of each.
        """
        if len(sequences) < 2:  # noqa: PLR2004 - it is alone
            return True
        if self._tensors is None:
            return sum(map(self._model.own_size.num_bytes, lengths)) <= self._own_bytes
        planned = self._planned(sequences, lengths)
        return sum(slots for _, slots in planned) <= self._memory.limit

    def was_short(self) -> bool:
        """Whether a run was evicted for another one since the last call."""
        was_short, self._memory.is_short = self._memory.is_short, False
        return was_short

    def compute(self, sequences: Items[Sequence], counts: Items[int]) -> Tensor:
        """
        Compute the next *counts* tokens of *sequences*, whose blocks are allocated.

        A failure leaves all sequences unchanged.

        Returns the logits after the last token of each.  # (sequences, vocab)
        """
        self.in_pass = False
        if self._tensors is None:
            [sequence] = sequences
            return self._compute_own(sequence)[None]
        run = self._run_of(sequences, counts)
        counted = dict(zip(map(id, sequences), counts, strict=True))
        order = [id(sequence) for sequence in run.sequences]
        self.in_pass = True
        logits = run.forward([counted[one] for one in order])
        self.in_pass = False
        index = [order.index(id(sequence)) for sequence in sequences]
        return logits[index] if index != list(range(len(index))) else logits

    def save(self, sequence: Sequence, *, partial: bool = False) -> None:
        """Write the missing blocks of the sequence: whole ones, or also the last one."""
        if sequence.run is not None:
            sequence.run.save(sequence, partial=partial)

    def drop(self, sequence: Sequence) -> None:
        """Remove *sequence* from its run; state that is not in its blocks is lost."""
        if sequence.run is not None:
            sequence.run.drop(sequence)
        sequence.own_cache = None

    def copy(self, source: BlockId, target: BlockId) -> None:
        """Copy a block's keys and values."""
        assert self._tensors is not None, "there are blocks"
        self._tensors.copy(source, target)

    def reset(self) -> None:
        """Close all runs; state that is not in blocks is lost."""
        self.in_pass = False
        self._memory.clear()

    def check(self, running: Iterable[Sequence]) -> None:
        """Assert that the runs are those of *running*, within their memory."""
        self._memory.check(running)

    def _run_of(self, sequences: Items[Sequence], counts: Items[int]) -> Run:
        """Return a run with exactly the rows *sequences*, and with slots for them."""
        run = self._joined(sequences, counts)
        if run is None or not self._has_slots(run, max(counts)):
            for sequence in sequences:
                self._leave(sequence)
            run = self._opened(sequences, counts)
        self._memory.use(run)
        return run

    def _joined(self, sequences: Items[Sequence], counts: Items[int]) -> Run | None:
        """Return an existing run with the rows *sequences*, where they can join one."""
        runs: list[Run] = [sequence.run for sequence in sequences if sequence.run is not None]
        if runs and set(counts) == {1}:
            run = max(runs, key=runs.count)
            others = [sequence for sequence in sequences if sequence.run is not run]
            for sequence in run.sequences:
                if sequence not in sequences:
                    self._leave(sequence)
            for sequence in others:
                self._leave(sequence)
                if not run.can_take(sequence):
                    return None
                run.take(sequence)
            return run
        if len(sequences) == 1 and runs and len(runs[0].sequences) == 1:
            return runs[0]
        return None

    def _has_slots(self, run: Run, num_new: int) -> bool:
        """Whether *run* has slots for the next *num_new* tokens, or can grow in place."""
        end, size = run.end + num_new, self._block_size
        if end + size <= run.room.slots:
            return True
        if end > _MAX_STALE * (run.longest + num_new):
            return False
        # Copied layer by layer, so that only one layer is duplicated at a time.
        layers = len(self._model.layout.shapes) // 2 if self._model.layout is not None else 1
        twice = -(-run.room.rows * run.room.slots // layers)
        room = grown(run.room, end, block_size=size, free=self._memory.free - twice)
        if room is None:
            return False
        run.grow(room.slots)
        return True

    def _opened(self, sequences: Items[Sequence], counts: Items[int]) -> Run:
        """Gather *sequences*, which are in no run, into a new one, evicting others."""
        shared, size = self._shared(sequences), self._block_size
        held, width = self._widths(sequences, counts, shared)
        free = self._memory.free
        least = held + least_slots(len(sequences), width, block_size=size)
        is_short = free < least
        if is_short:
            self._memory.make_room(least)
            free = self._memory.free
        room = choose_room(
            len(sequences), width, block_size=size, limit=free - held, is_short=is_short
        )
        assert room is not None, "what is admitted fits, alone or in the parts of a batch"
        assert self._tensors is not None, "there are blocks"
        return Run(self._model, self._tensors, sequences, shared=shared, counts=counts, room=room)

    def _leave(self, sequence: Sequence) -> None:
        self.save(sequence, partial=True)
        self.drop(sequence)

    def _planned(
        self, sequences: Items[Sequence], lengths: Items[int]
    ) -> list[tuple[list[int], int]]:
        """Group *sequences*, by index, at these lengths; with the slots of each group."""
        size = self._block_size
        shared = self._shared(sequences) if self._model.can_batch else [0] * len(sequences)
        own = [length - num * size for length, num in zip(lengths, shared, strict=True)]
        groups = split_by_length(own) if self._model.can_batch else [[i] for i in range(len(own))]
        return [
            (
                group,
                least_slots(len(group), max(own[i] for i in group), block_size=size)
                + self._held([sequences[i] for i in group], [shared[i] for i in group]),
            )
            for group in groups
        ]

    def _least(self, batch: Batch) -> int:
        """Return the minimum slots of a run for *batch*."""
        sequences, counts = [one for one, _ in batch], [count for _, count in batch]
        held, width = self._widths(sequences, counts, self._shared(sequences))
        return held + least_slots(len(batch), width, block_size=self._block_size)

    def _widths(
        self, sequences: Items[Sequence], counts: Items[int], shared: Items[int]
    ) -> tuple[int, int]:
        """Return the slots of all shared parts, and of the longest row after a pass."""
        size = self._block_size
        own = [
            sequence.num_computed + count - num * size
            for sequence, count, num in zip(sequences, counts, shared, strict=True)
        ]
        return self._held(sequences, shared), max(own)

    def _held(self, sequences: Items[Sequence], shared: Items[int]) -> int:
        parts = {tuple(one.table[:num]) for one, num in zip(sequences, shared, strict=True)}
        return sum(map(len, parts)) * self._block_size

    def _shared(self, sequences: Items[Sequence]) -> list[int]:
        if len(sequences) < 2 or not self._model.attends:  # noqa: PLR2004 - no other row to share with
            return [0] * len(sequences)
        size = self._block_size
        tables = [s.table[: s.num_written // size] for s in sequences]
        return shared_prefixes(tables, block_size=size)

    @property
    def _block_size(self) -> int:
        assert self._tensors is not None, "there are blocks"
        return self._tensors.block_size

    def _compute_own(self, sequence: Sequence) -> Tensor:
        cache = sequence.own_cache or OwnCache()
        token_ids = sequence.token_ids[sequence.num_computed :]
        # Unset during the pass: a failed one leaves a state of unknown length.
        sequence.own_cache, had = None, sequence.num_computed
        sequence.num_computed = 0
        logits = self._model.forward_own(token_ids, cache)
        sequence.own_cache, sequence.num_computed = cache, had + len(token_ids)
        return logits


def _in_one_run(sequences: Items[Sequence]) -> bool:
    run = sequences[0].run
    return (
        run is not None
        and all(sequence.run is run for sequence in sequences)
        and len(run.sequences) == len(sequences)
    )
