"""Brings sequences into runs and computes their next tokens; the only one to move tensors."""

from collections.abc import Sequence as Items

from torch import Tensor

from agentmem.inference.block_pool import BlockId
from agentmem.inference.causal_model import CausalModel, OwnCache
from agentmem.inference.kv_tensors import KVTensors
from agentmem.inference.run_plan import shared_prefixes, split_by_length
from agentmem.inference.runs import Run
from agentmem.inference.sequence import Sequence


class Runner:
    """
    The passes of one model.

    Args:
        model: what to run.
        tensors: where its blocks are; None for a model whose state cannot be kept in blocks.
    """

    def __init__(self, model: CausalModel, tensors: KVTensors | None) -> None:
        self._model = model
        self._tensors = tensors
        self.in_pass = False
        """Whether the last thing that was begun is a pass of the model, and it has not ended."""

    def groups(self, sequences: Items[Sequence]) -> list[list[Sequence]]:
        """Split decoding *sequences* into those that go through the model together."""
        if self._tensors is None or not self._model.can_batch:
            return [[sequence] for sequence in sequences]
        if len(sequences) < 2 or _in_one_run(sequences):  # noqa: PLR2004 - nothing to split
            return [list(sequences)] if sequences else []
        size = self._tensors.block_size
        lengths = [
            sequence.num_computed - num * size
            for sequence, num in zip(sequences, self._shared(sequences), strict=True)
        ]
        return [[sequences[i] for i in group] for group in split_by_length(lengths)]

    def compute(self, sequences: Items[Sequence], counts: Items[int]) -> Tensor:
        """
        Compute the next *counts* tokens of *sequences*, which have blocks for them.

        If it fails, all sequences are as they were.

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
        """Write to the sequence's blocks what they lack, up to whole blocks or all of it."""
        if sequence.run is not None:
            sequence.run.save(sequence, partial=partial)

    def drop(self, sequence: Sequence) -> None:
        """Take *sequence* out of its run; what is not in its blocks is lost."""
        if sequence.run is not None:
            sequence.run.drop(sequence)
        sequence.own_cache = None

    def copy(self, source: BlockId, target: BlockId) -> None:
        """Copy a block's keys and values."""
        assert self._tensors is not None, "there are blocks"
        self._tensors.copy(source, target)

    def _run_of(self, sequences: Items[Sequence], counts: Items[int]) -> Run:
        """Bring *sequences* into one run that has no other rows."""
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
                    break
                run.take(sequence)
            if all(sequence.run is run for sequence in sequences):
                return run
        elif len(sequences) == 1 and runs and len(runs[0].sequences) == 1:
            return runs[0]
        for sequence in sequences:
            self._leave(sequence)
        shared = self._shared(sequences)
        assert self._tensors is not None, "there are blocks"
        return Run(self._model, self._tensors, sequences, shared=shared, counts=counts)

    def _leave(self, sequence: Sequence) -> None:
        self.save(sequence, partial=True)
        self.drop(sequence)

    def _shared(self, sequences: Items[Sequence]) -> list[int]:
        if len(sequences) < 2 or not self._model.attends:  # noqa: PLR2004 - nobody to share with
            return [0] * len(sequences)
        assert self._tensors is not None, "there are blocks"
        size = self._tensors.block_size
        tables = [s.table[: s.num_written // size] for s in sequences]
        return shared_prefixes(tables, block_size=size)

    def _compute_own(self, sequence: Sequence) -> Tensor:
        cache = sequence.own_cache or OwnCache()
        token_ids = sequence.token_ids[sequence.num_computed :]
        # Unset while it runs: a pass that fails leaves a state of which nobody knows the length.
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
