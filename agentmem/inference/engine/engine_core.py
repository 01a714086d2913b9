"""
One engine step for all sequences: start, prefill or decode, publish blocks, emit tokens.

It connects policy and tensors, and is not thread-safe; `engine` calls it under a lock.
"""

import heapq
import itertools
import logging

from torch import Tensor

from agentmem.errors import InferenceError, OutOfBlocksError
from agentmem.inference.engine.admission import Admission
from agentmem.inference.engine.scheduler import Scheduler
from agentmem.inference.engine.sequence_blocks import SequenceBlocks
from agentmem.inference.engine.stats import Counters
from agentmem.inference.kv_cache.prefix_cache import PrefixCache
from agentmem.inference.kv_cache.sequence import Batch, Sequence, State
from agentmem.inference.runner.model_runner import Runner
from agentmem.machine.logs import log, nature

_log = logging.getLogger(__name__)


class EngineCore:
    """
    Runs sequences from the queue to completion.

    Args:
        scheduler: decides the order.
        admission: decides how many run.
        prefixes: allocates and shares blocks.
        runner: runs forward passes.
        refusal: why prefixes cannot be reused, if so; then no blocks are used.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        admission: Admission,
        prefixes: PrefixCache,
        runner: Runner,
        *,
        refusal: str | None,
    ) -> None:
        self._scheduler = scheduler
        self._admission = admission
        self._prefixes = prefixes
        self._runner = runner
        self._refusal = refusal
        self._blocks = SequenceBlocks(prefixes, runner)
        self._forks: dict[int, list[Sequence]] = {}
        # All unfinished sequences, in order of arrival, from which the accounting is rebuilt.
        self._alive: dict[int, Sequence] = {}
        self._deadlines: list[tuple[float, int, Sequence]] = []
        self._numbers = itertools.count()
        self.is_torn = False
        """Whether the accounting may be inconsistent, so that `reset` must rebuild it."""

        self.counters = Counters()

    def add(self, sequence: Sequence) -> None:
        """Queue *sequence*, once; a fork waits for the prompt of its parent."""
        if id(sequence) in self._alive:
            return
        if sequence.deadline is not None:
            entry = (sequence.deadline, next(self._numbers), sequence)
            heapq.heappush(self._deadlines, entry)
        self._alive[id(sequence)] = sequence
        self._queue(sequence)

    def _queue(self, sequence: Sequence) -> None:
        parent = sequence.parent
        if self._refusal is None:
            whole = (sequence.num_prompt - 1) // self._prefixes.block_size
            prompt = sequence.token_ids[: whole * self._prefixes.block_size]
            sequence.keys = self._prefixes.keys(prompt, salt=sequence.salt)
            if parent is not None and parent.num_generated == 0 and parent.is_alive:
                sequence.state = State.FORKING
                self._forks.setdefault(id(parent), []).append(sequence)
                return
        self._scheduler.add(sequence)

    def step(self, now: float) -> bool:
        """Run one step; return whether there was any work."""
        self._expire(now)
        self._make_room(now)
        self._start(now)
        decoding = self._scheduler.decoding()
        batches = [part for one in self._scheduler.prefills() for part in self._runner.parts(one)]
        for batch in batches:
            self._advance(batch, now)
        alive = [sequence for sequence in decoding if sequence.is_decoding and sequence.is_alive]
        for group in self._runner.groups(alive):
            self._advance([(sequence, 1) for sequence in group], now)
        return bool(batches or decoding)

    def end(self, sequence: Sequence) -> None:
        """
        Publish the computed blocks of *sequence* and release all of its resources.

        Idempotent. Does not raise: blocks that cannot be published are dropped.
        """
        if sequence.state is State.ENDED:
            return
        children = self._forks.get(id(sequence.parent), []) if sequence.parent is not None else []
        if sequence in children:
            children.remove(sequence)
        try:
            self._let_go(sequence)
        except Exception as error:  # noqa: BLE001 - the request has ended, whatever it was
            self.is_torn = True
            line = "the prefix cache was cleared after a failure to publish a block: {error}"
            log(_log, logging.WARNING, "prefix_cache_dropped", line, error=nature(error))
        self._scheduler.remove(sequence)
        for child in self._forks.pop(id(sequence), ()):
            self._scheduler.add(child)
        self._alive.pop(id(sequence), None)

    def is_whole(self) -> bool:
        """Whether the interrupt came in a forward pass, which then changed no state."""
        return self._runner.in_pass and all(
            # A sequence whose tokens are all computed has lost the logits of its next token.
            sequence.num_missing > 0 and (sequence.run is None or sequence.run.agrees())
            for sequence in self._scheduler.running
        )

    def reset(self) -> None:
        """
        Rebuild the accounting: the cache is empty, and unfinished sequences start over.

        A request that was interrupted while sampling fails: the state of its random generator is
        unknown.
        """
        self._runner.reset()
        self._prefixes.reset()
        self._scheduler.clear()
        self._forks.clear()
        for sequence in list(self._alive.values()):
            sequence.restart()
            taken = sequence.reader.taken
            if taken is None:
                sequence.reader.fail(_interrupted())
            elif sequence.state is State.ENDED:
                sequence.reader.abort()
            if sequence.reader.is_done:
                sequence.state = State.ENDED
                self._alive.pop(id(sequence), None)
                continue
            sequence.token_ids[sequence.num_prompt :] = taken or []
            sequence.num_preempted += 1
            self._queue(sequence)
        self.is_torn = False

    def num_tokens(self) -> int:
        """Return the number of tokens in blocks in use, counting shared blocks once."""
        return self._blocks.num_tokens(self._scheduler.running)

    def alive(self) -> list[Sequence]:
        """Return all unfinished sequences."""
        return list(self._alive.values())

    def fail_all(self, error: Exception) -> None:
        """Fail all running sequences with *error*."""
        for sequence in list(self._scheduler.running):
            self._fail(sequence, error)

    def _expire(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            sequence = self._deadlines[0][2]
            sequence.reader.expire()
            self.end(sequence)
            heapq.heappop(self._deadlines)

    def _make_room(self, now: float) -> None:
        """
        Preempt sequences until the buffers of all running ones fit their memory.

        Else their keys and values would be gathered again for each pass.
        """
        if not self._runner.was_short():
            return
        running = self._scheduler.running
        while not self._runner.fits(running, [len(sequence.token_ids) for sequence in running]):
            victim = self._scheduler.victim(now)
            if victim is None:
                return
            self._preempt(victim)

    def _start(self, now: float) -> None:
        for sequence, _ in self._scheduler.candidates(now, self._num_known):
            # In order: a smaller request does not overtake one that does not fit.
            if not self._scheduler.has_room or not self._try_start(sequence):
                break

    def _num_known(self, sequence: Sequence) -> int:
        return self._prefixes.num_known(sequence.keys)

    def _try_start(self, sequence: Sequence) -> bool:
        """Acquire the cached prefix of *sequence* and start it, or change nothing."""
        if self._refusal is not None:
            if not self._fits_beside(sequence):
                return False
            if sequence.num_cached is None:
                self.counters.refused_reuse[self._refusal] += 1
            self._count_begun(sequence, num_cached=0)
            self._scheduler.start(sequence)
            return True
        size = self._prefixes.block_size
        hits = self._prefixes.match(
            sequence.token_ids, salt=sequence.salt, cache_priority=sequence.cache_priority
        )
        promised = sum(
            max(self._admission.expected_blocks(other) - len(other.table), 0)
            for other in self._scheduler.running
        )
        needed = self._admission.expected_blocks(sequence) - len(hits)
        if self._scheduler.running and needed > self._prefixes.num_available - promised:
            self._prefixes.release(hits)
            return False
        sequence.table = hits
        sequence.num_published = len(hits)
        sequence.num_computed = sequence.num_written = len(hits) * size
        if not self._fits_beside(sequence):
            self._prefixes.release(hits)
            sequence.restart()
            return False
        self._blocks.copy_part(sequence)
        self._count_begun(sequence, num_cached=sequence.num_computed)
        self._scheduler.start(sequence)
        return True

    def _count_begun(self, sequence: Sequence, *, num_cached: int) -> None:
        """Count a request that starts, but for one that starts over."""
        if sequence.num_cached is not None:
            return
        sequence.num_cached = num_cached
        self.counters.requests += 1
        # In this order, so that a thread that reads between the two never sees more hits.
        self.counters.prefix_query_tokens += sequence.num_prompt
        self.counters.prefix_hit_tokens += num_cached

    def _fits_beside(self, sequence: Sequence) -> bool:
        """Whether the buffers of *sequence* and all running ones fit at their maximum lengths."""
        side_by_side = [*self._scheduler.running, sequence]
        if self._refusal is not None:
            # Its state cannot be resumed after a preemption, so its maximum is counted.
            lengths = [one.num_prompt + one.max_tokens for one in side_by_side]
        else:
            size = self._prefixes.block_size
            lengths = [self._admission.expected_blocks(one) * size for one in side_by_side]
        return self._runner.fits(side_by_side, lengths)

    def _advance(self, batch: Batch, now: float) -> None:
        """Compute the next tokens of *batch*; a failing sequence does not affect others."""
        for sequence, count in batch:
            if sequence.state is State.RUNNING:
                self._ensure_blocks(sequence, count, now)
        batch = [(one, count) for one, count in batch if one.state is State.RUNNING]
        if not batch:
            return
        try:
            logits = self._compute(batch)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of one request alone
            self._runner.in_pass = False
            if len(batch) == 1:
                self._fail(batch[0][0], error)
            else:
                for item in batch:
                    self._advance([item], now)
            return
        for (sequence, count), row in zip(batch, logits, strict=True):
            self._after(sequence, count, row)

    def _compute(self, batch: Batch) -> Tensor:  # (sequences, vocab)
        logits = self._runner.compute([one for one, _ in batch], [count for _, count in batch])
        self.counters.passes += 1
        self.counters.batched_passes += len(batch) > 1
        return logits

    def _after(self, sequence: Sequence, count: int, logits: Tensor) -> None:
        """Publish the blocks of a forward pass and emit its tokens."""
        prompt = count > 1 or sequence.num_generated == 0
        if prompt:
            self.counters.prefill_tokens += count
        else:
            self.counters.decode_tokens += count
        try:
            if prompt and self._refusal is None:
                self._blocks.publish(sequence)
            if sequence.num_missing == 0:
                for child in self._forks.pop(id(sequence), ()):
                    self._fork(sequence, child, logits)
                self._hand_out(sequence, logits)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this request alone
            self._fail(sequence, error)

    def _hand_out(self, sequence: Sequence, logits: Tensor) -> None:  # (vocab,)
        token_id = sequence.reader.take(logits)
        if token_id is None:
            self._admission.observe(sequence)
            self.end(sequence)
        else:
            sequence.token_ids.append(token_id)

    def _fork(self, parent: Sequence, child: Sequence, logits: Tensor) -> None:
        """Fork *child* from the prompt of *parent*: share whole blocks, copy the last."""
        if not self._scheduler.has_room or not self._blocks.fork(parent, child):
            self._scheduler.add(child)
            return
        if not self._fits_beside(child):
            self._prefixes.release(child.table)
            child.restart()
            self._scheduler.add(child)
            return
        self.counters.forks += 1
        self._count_begun(child, num_cached=parent.num_computed)
        self._scheduler.admit(child)
        try:
            self._hand_out(child, logits)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is of this request alone
            self._fail(child, error)

    def _fail(self, sequence: Sequence, error: Exception) -> None:
        sequence.reader.fail(error)
        self.end(sequence)

    def _ensure_blocks(self, sequence: Sequence, count: int, now: float) -> None:
        """Allocate blocks for all positions of *sequence*, preempting others if necessary."""
        if self._refusal is not None:
            return
        last = sequence.num_computed + count
        missing = -(-last // self._prefixes.block_size) - len(sequence.table)
        while missing > self._prefixes.num_available:
            victim = self._scheduler.victim(now)
            if victim is None:
                error = OutOfBlocksError(
                    needed=missing,
                    free=self._prefixes.num_available,
                    total=self._prefixes.num_blocks,
                )
                self._fail(sequence, error)
                return
            self._preempt(victim)
            if victim is sequence:
                return
        sequence.table += self._prefixes.allocate(max(missing, 0))

    def _preempt(self, sequence: Sequence) -> None:
        self._let_go(sequence)
        self._scheduler.requeue(sequence)
        self._admission.preempted()
        self.counters.preemptions += 1
        log(
            _log,
            logging.INFO,
            "request_preempted",
            "a request of {num_prompt} prompt tokens was preempted; its KV is recomputed later",
            num_prompt=sequence.num_prompt,
            num_generated=sequence.num_generated,
            num_preempted=sequence.num_preempted + 1,
        )

    def _let_go(self, sequence: Sequence) -> None:
        """Publish computed blocks, and release blocks and buffers."""
        try:
            if self._refusal is None:
                self._blocks.publish(sequence)
                self._blocks.publish_part(sequence)
        finally:
            self._runner.drop(sequence)
            self._prefixes.release(sequence.table)
            sequence.table = []


def _interrupted() -> InferenceError:
    return InferenceError(
        "the engine was interrupted while it sampled a token of this request: retry the request"
    )
