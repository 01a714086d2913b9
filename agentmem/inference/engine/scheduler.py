"""
What starts next, what the next step computes, and what is preempted. Plain Python.

Order in the queue: priority, which grows with the time waited; then what was preempted or passed
over too often; then the longest cached prefix; then arrival. A request waits while another one
computes the block that it needs next, so that a prefix which many share is computed once.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentmem.inference.kv_cache.sequence import Batch, Sequence, State

_CHUNK = 128
"""Waiting requests that are compared with each other."""

_MAX_LOOKED_AT = 1024
"""Waiting requests that a step looks at, so that its time does not grow with the queue."""

_MAX_PADDING = 1.25
"""Computed tokens for each real one that a ragged prefill may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a step may take; see `InferenceConfig`."""

    max_num_seqs: int
    max_num_batched_tokens: int
    prefill_chunk: int
    ageing_s: float = 10.0
    """Seconds of waiting that count as much as one step of priority."""

    max_passed: int = 16
    """How often others may begin before a request of the same priority that came earlier."""


class Scheduler:
    """
    The queue and the running sequences; it decides and moves no block.

    The queue is sorted by the moment at which a request would have come with priority 0: one step
    of priority is worth *ageing_s* seconds of waiting. That moment never changes, so nothing is
    sorted again while requests wait.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []

    @property
    def has_room(self) -> bool:
        """Whether one more sequence may run."""
        return len(self.running) < self._limits.max_num_seqs

    def add(self, sequence: Sequence) -> None:
        """Put *sequence* into the queue."""
        sequence.state = State.WAITING
        insort(self.waiting, sequence, key=self._moment)

    def candidates(
        self, now: float, num_known: Callable[[Sequence], int]
    ) -> Iterator[tuple[Sequence, int]]:
        """
        Yield the requests that may start, in order, with the number of their cached blocks.

        A request is left out while a sequence that runs, or was started out of this iteration,
        computes the block that it needs next. Of a long queue the beginning is looked at, which is
        many times what can start.

        Args:
            now: the time, by the clock of `Sequence.arrived`.
            num_known: returns how many blocks of a prompt are cached.
        """
        if not self.waiting or not self.has_room:
            return
        coming = {key for sequence in self.running for key in _unpublished(sequence)}
        queue = self.waiting[:_MAX_LOOKED_AT]
        for start in range(0, len(queue), _CHUNK):
            chunk = queue[start : start + _CHUNK]
            known = {id(sequence): num_known(sequence) for sequence in chunk}

            def place(sequence: Sequence, known: dict[int, int] = known) -> tuple[int | float, ...]:
                is_late = sequence.num_preempted or sequence.num_passed >= self._limits.max_passed
                level = self.level(sequence, now)
                return -level, not is_late, -known[id(sequence)], sequence.arrived

            for sequence in sorted(chunk, key=place):
                num = known[id(sequence)]
                if num < len(sequence.keys) and sequence.keys[num] in coming:
                    continue
                yield sequence, num
                if sequence.state is State.RUNNING:
                    coming.update(_unpublished(sequence))

    def start(self, sequence: Sequence) -> None:
        """Move *sequence* from the queue to those that run."""
        index = self._index(sequence)
        del self.waiting[index]
        self.admit(sequence)
        for other in self.waiting[:index]:
            if other.arrived < sequence.arrived and other.priority >= sequence.priority:
                other.num_passed += 1

    def admit(self, sequence: Sequence) -> None:
        """Run a sequence that was never in the queue."""
        sequence.state = State.RUNNING
        self.running.append(sequence)

    def requeue(self, sequence: Sequence) -> None:
        """Move a running sequence to the front of the queue, with all that it has generated."""
        self.running.remove(sequence)
        sequence.num_preempted += 1
        sequence.restart()
        self.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget *sequence*, which has ended."""
        if sequence.state is State.WAITING and self.waiting:
            index = self._index(sequence)
            if index < len(self.waiting) and self.waiting[index] is sequence:
                del self.waiting[index]
        elif sequence in self.running:
            self.running.remove(sequence)
        sequence.state = State.ENDED

    def clear(self) -> None:
        """Forget all sequences."""
        self.waiting.clear()
        self.running.clear()

    def _moment(self, sequence: Sequence) -> float:
        return sequence.arrived - sequence.priority * self._limits.ageing_s

    def _index(self, sequence: Sequence) -> int:
        """Return the place of *sequence* in the queue; past its moment if it is not there."""
        index = bisect_left(self.waiting, self._moment(sequence), key=self._moment)
        while index < len(self.waiting) and self.waiting[index] is not sequence:
            if self._moment(self.waiting[index]) != self._moment(sequence):
                break
            index += 1
        return index

    def level(self, sequence: Sequence, now: float) -> int:
        """Return the priority of *sequence* with the time that it has waited."""
        waited = max(now - sequence.arrived, 0.0)
        return sequence.priority + int(waited / self._limits.ageing_s)

    def victim(self, now: float) -> Sequence | None:
        """Choose the victim: least priority, then youngest; None keeps the last one running."""
        if len(self.running) < 2:  # noqa: PLR2004 - one must go on
            return None
        youngest_first = reversed(self.running)
        return min(youngest_first, key=lambda sequence: self.level(sequence, now))

    def decoding(self) -> list[Sequence]:
        """Return the sequences that are one token away from their next."""
        return [sequence for sequence in self.running if sequence.is_decoding]

    def prefills(self) -> list[Batch]:
        """
        Choose the prompt tokens of the next step, in passes.

        A prompt that does not end in this step is computed alone, in chunks; prompts that do end
        go together where padding them to one length costs little.
        """
        left = self._limits.max_num_batched_tokens
        batches: list[Batch] = []
        ending: Batch = []
        for sequence in self.running:
            if sequence.is_decoding:
                continue
            wanted = min(sequence.num_missing, self._limits.prefill_chunk)
            num = min(wanted, left)
            if num <= 0 or (num < wanted and left < self._limits.max_num_batched_tokens):
                break
            left -= num
            if num < sequence.num_missing:
                batches.append([(sequence, num)])
            else:
                ending.append((sequence, num))
        return batches + _padded(ending)


def _unpublished(sequence: Sequence) -> "list[bytes]":
    """Name the blocks that others will find once *sequence* has computed its prompt."""
    return [] if sequence.is_decoding else list(sequence.keys[sequence.num_published :])


def _padded(ending: Batch) -> list[Batch]:
    """Put together what has about the same length, in the order of length."""
    batches: list[Batch] = []
    total = 0
    for sequence, num in sorted(ending, key=lambda item: item[1]):
        total += num
        if batches and num * (len(batches[-1]) + 1) <= _MAX_PADDING * total:
            batches[-1].append((sequence, num))
        else:
            batches.append([(sequence, num)])
            total = num
    return batches
