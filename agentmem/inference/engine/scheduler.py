"""
Scheduling policy: which request starts, the batch of a step, the preemption victim. Plain Python.

Order of the queue: priority, which ages with waiting time; then preempted and too often overtaken
requests; then the longest cached prefix; then arrival. A request waits while another one computes
the next block of its prefix, so that a shared prefix is computed once.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agentmem.inference.kv_cache.sequence import Batch, Sequence, State

_CHUNK = 128
"""Number of waiting requests that are compared with each other."""

_MAX_LOOKED_AT = 1024
"""Number of waiting requests that a step considers, so that its time is bounded."""

_MAX_PADDING = 1.25
"""Maximum ratio of padded to real tokens in a ragged prefill."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of a step; see `InferenceConfig`."""

    max_num_seqs: int
    max_num_batched_tokens: int
    prefill_chunk: int
    ageing_s: float = 10.0
    """Seconds of waiting that equal one level of priority."""

    max_passed: int = 16
    """Maximum times that later requests of the same priority overtake a request."""


class Scheduler:
    """
    The queue and the running sequences; it decides, without moving blocks.

    The queue is sorted by virtual arrival time, that of an equivalent request of priority 0: one
    level of priority is worth *ageing_s* seconds of waiting. It is constant, so the queue is never
    sorted again.
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
        """Queue *sequence*."""
        sequence.state = State.WAITING
        insort(self.waiting, sequence, key=self._moment)

    def candidates(
        self, now: float, num_known: Callable[[Sequence], int]
    ) -> Iterator[tuple[Sequence, int]]:
        """
        Yield the requests that may start, in order, each with its number of cached blocks.

        A request is skipped while a running sequence, or one started from this iteration, computes
        the next block of its prefix. Only the head of a long queue is considered, many times the
        number that can start.

        Args:
            now: the time, by the clock of `Sequence.arrived`.
            num_known: returns the number of cached blocks of a prompt.
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
        """Move *sequence* from the queue to the running ones."""
        index = self._index(sequence)
        del self.waiting[index]
        self.admit(sequence)
        for other in self.waiting[:index]:
            if other.arrived < sequence.arrived and other.priority >= sequence.priority:
                other.num_passed += 1

    def admit(self, sequence: Sequence) -> None:
        """Add a running sequence that was never queued."""
        sequence.state = State.RUNNING
        self.running.append(sequence)

    def requeue(self, sequence: Sequence) -> None:
        """Move a running sequence to the front of the queue, with its generated tokens."""
        self.running.remove(sequence)
        sequence.num_preempted += 1
        sequence.restart()
        self.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Remove *sequence*, which has ended."""
        if sequence.state is State.WAITING and self.waiting:
            index = self._index(sequence)
            if index < len(self.waiting) and self.waiting[index] is sequence:
                del self.waiting[index]
        elif sequence in self.running:
            self.running.remove(sequence)
        sequence.state = State.ENDED

    def clear(self) -> None:
        """Remove all sequences."""
        self.waiting.clear()
        self.running.clear()

    def _moment(self, sequence: Sequence) -> float:
        return sequence.arrived - sequence.priority * self._limits.ageing_s

    def _index(self, sequence: Sequence) -> int:
        """Return the index of *sequence* in the queue, or its insertion point."""
        index = bisect_left(self.waiting, self._moment(sequence), key=self._moment)
        while index < len(self.waiting) and self.waiting[index] is not sequence:
            if self._moment(self.waiting[index]) != self._moment(sequence):
                break
            index += 1
        return index

    def level(self, sequence: Sequence, now: float) -> int:
        """Return the priority of *sequence*, aged by its waiting time."""
        waited = max(now - sequence.arrived, 0.0)
        return sequence.priority + int(waited / self._limits.ageing_s)

    def victim(self, now: float) -> Sequence | None:
        """Choose the preemption victim: lowest priority, then youngest; None for the last one."""
        if len(self.running) < 2:  # noqa: PLR2004 - one must go on
            return None
        youngest_first = reversed(self.running)
        return min(youngest_first, key=lambda sequence: self.level(sequence, now))

    def decoding(self) -> list[Sequence]:
        """Return the decoding sequences."""
        return [sequence for sequence in self.running if sequence.is_decoding]

    def prefills(self) -> list[Batch]:
        """
        Choose the prompt tokens of the next step, as forward passes.

        A prompt that does not end in this step is computed alone, in chunks; prompts that end are
        batched where padding to one length costs little.
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
    """Return the hashes of blocks that *sequence* will publish with its prompt."""
    return [] if sequence.is_decoding else list(sequence.keys[sequence.num_published :])


def _padded(ending: Batch) -> list[Batch]:
    """Group sequences of similar length, in order of length."""
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
