"""
An engine that many threads share: they add requests, wait for tokens, and leave when they like.

Nobody but the callers moves it: whoever waits for a token takes a step, for everybody, unless
another is in one. So there is no thread to leak and no idle loop. A step holds the lock; what
comes or ends in the meantime is put aside and taken up by whoever has the lock.
"""

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as TokenIds
from contextlib import contextmanager

from agentmem.config import InferenceConfig
from agentmem.errors import ConfigError, InferenceError, QueueFullError
from agentmem.inference.admission import Admission
from agentmem.inference.batcher import Batcher
from agentmem.inference.block_pool import BlockPool
from agentmem.inference.causal_model import CausalModel
from agentmem.inference.device_memory import pool_bytes
from agentmem.inference.kv_tensors import KVTensors
from agentmem.inference.kv_usage import KVUsage
from agentmem.inference.prefix_cache import PrefixCache
from agentmem.inference.runner import Runner
from agentmem.inference.scheduler import Limits, Scheduler
from agentmem.inference.sequence import Sequence, State

_LOOK_AGAIN_S = 1.0
"""Nobody relies on it: who stops driving wakes the others."""


class Engine:
    """
    One model and its KV pool.

    Args:
        model: the model to run.
        config: the size of the pool, of its blocks and of a step.
        fingerprint: names the weights; part of each block's key.
        context_window: tokens that one sequence may have.
    """

    def __init__(
        self, model: CausalModel, config: InferenceConfig, *, fingerprint: str, context_window: int
    ) -> None:
        self._model = model
        self._config = config
        self._lock = threading.Lock()
        self._arrived: deque[Sequence] = deque()
        self._ended: deque[Sequence] = deque()
        self._waiters: dict[int, threading.Event] = {}
        # Who waits for the lock: whoever drives takes it back at once, and would never let them.
        self._callers: deque[None] = deque()
        self._has_yielded = False
        self._closed = threading.Event()
        # When the process ends, the library is taken apart before the last streams are: they are
        # to touch no tensor then.
        weakref.finalize(self, self._closed.set)
        num_blocks = _num_blocks(model, config)
        self._pool = BlockPool(max(num_blocks, 1))
        key = f"{fingerprint}:{model.dtype}:{config.weights}"
        self._prefixes = PrefixCache(self._pool, block_size=config.block_size, model=key)
        self._tensors: KVTensors | None = None
        if model.layout is not None:
            self._tensors = KVTensors(
                model.layout, block_size=config.block_size, num_blocks=num_blocks
            )
        self._scheduler = Scheduler(
            Limits(
                max_num_seqs=config.max_num_seqs,
                max_num_batched_tokens=config.max_num_batched_tokens,
                prefill_chunk=config.prefill_chunk,
            )
        )
        self._admission = Admission(
            block_size=config.block_size,
            num_blocks=num_blocks if self._tensors is not None else None,
            context_window=context_window,
        )
        self._batcher = Batcher(
            self._scheduler,
            self._admission,
            self._prefixes,
            Runner(model, self._tensors),
            refusal=model.refusal,
        )

    @property
    def refused_reuse(self) -> Mapping[str, int]:
        """Why requests could not reuse a prefix, and how many."""
        return dict(self._batcher.refused)

    @property
    def counts(self) -> Mapping[str, int]:
        """Count what was done: tokens of prompts and of answers, passes, preemptions, forks."""
        return dict(self._batcher.counts)

    def admit(self, num_prompt: int, max_tokens: int | None) -> int:
        """
        Tell how many tokens may be generated after a prompt of *num_prompt*. It never waits.

        Raises:
            AdmissionError: prompt and reply can never fit.
            QueueFullError: too many requests wait already.
        """
        free = self._prefixes.num_available
        allowed = self._admission.check(num_prompt, max_tokens, free=free)
        waiting = len(self._scheduler.waiting) + len(self._arrived)
        if waiting >= self._config.max_waiting:
            raise QueueFullError(waiting=waiting, limit=self._config.max_waiting)
        return allowed

    def add(self, sequence: Sequence) -> None:
        """Put an admitted request into the queue. It never waits."""
        if self._closed.is_set():
            raise _closed()
        self._arrived.append(sequence)

    def step(self) -> bool:
        """Take one step for all sequences; tell whether there was anything to do."""
        with self._locked():
            return self._step()

    def drive(self, is_ready: Callable[[], bool], event: threading.Event) -> None:
        """
        Take steps, in turn with others who wait, until *is_ready*.

        Args:
            is_ready: tells whether the caller has what it waits for.
            event: set by the caller's reader when that may be so, and when somebody else stops.
        """
        self._waiters[id(event)] = event
        try:
            while True:
                event.clear()
                if is_ready():
                    return
                if not self._try_step():
                    event.wait(_LOOK_AGAIN_S)
        finally:
            del self._waiters[id(event)]
            self._wake()

    def cancel(self, sequence: Sequence) -> None:
        """
        End *sequence*, publish what it computed and give its blocks back. Can be called twice.

        It never waits: it may be called by the garbage collector, in the middle of a step of
        the same thread. If the lock is held, whoever holds it finishes the work.
        """
        self._ended.append(sequence)
        self._finish_ended()

    def discard(self, token_ids: TokenIds[int], *, keep: int, salt: str) -> int:
        """Drop what is cached of *token_ids* behind the first *keep*; tell how many blocks."""
        with self._locked():
            return self._prefixes.discard(token_ids, keep=keep, salt=salt)

    def forget(self, *, salt: str) -> None:
        """Drop all that is cached under *salt*, and overwrite it with zeros."""
        with self._locked():
            freed = self._prefixes.forget(salt=salt)
            if self._tensors is not None:
                self._tensors.erase(freed)

    def usage(self) -> KVUsage:
        """Tell where the blocks are."""
        with self._locked():
            total = self._pool.num_blocks if self._tensors else 0
            free = self._pool.num_free if self._tensors else 0
            cached = self._prefixes.num_cached
            return KVUsage(
                free=free,
                cached=cached,
                in_use=total - free - cached,
                total=total,
                block_size=self._config.block_size,
                tokens=self._batcher.num_tokens(),
                kv_bytes=self._tensors.num_bytes if self._tensors else 0,
                max_kv_bytes=self._tensors.max_bytes if self._tensors else 0,
            )

    def check(self) -> None:
        """Assert that the accounts agree. For tests and idle loops."""
        with self._locked():
            self._prefixes.check(sequence.table for sequence in self._scheduler.running)
            for sequence in self._scheduler.running:
                assert sequence.num_written <= sequence.num_computed, "more written than computed"
                assert sequence.state is State.RUNNING, "an ended sequence runs"
            for sequence in self._scheduler.waiting:
                assert not sequence.table, "a waiting sequence holds blocks"

    def close(self) -> None:
        """Give the memory back; whatever still runs or waits ends with an error."""
        with self._locked():
            self._closed.set()
            for sequence in self._batcher.alive():
                self._batcher.end(sequence)
                sequence.reader.fail(_closed())
            if self._tensors is not None:
                self._tensors.release()

    def _step(self) -> bool:
        try:
            return self._batcher.step(time.monotonic())
        except BaseException:
            # A pass that fails leaves nothing behind. Anywhere else the accounts may be half
            # written: they are made anew, and everybody starts over.
            if not self._batcher.is_whole():
                self._batcher.reset()
            raise

    def _try_step(self) -> bool:
        """Take a step, unless somebody else is in one or comes first, or there is nothing to do."""
        if self._callers and not self._has_yielded:
            self._has_yielded = True
            return False
        if not self._lock.acquire(blocking=False):
            return False
        self._has_yielded = False
        try:
            self._take_up()
            return not self._closed.is_set() and self._step()
        finally:
            self._take_up()
            self._lock.release()
            self._finish_ended()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock, with what came and ended taken up before, and what ended after."""
        self._callers.append(None)
        try:
            with self._lock:
                if self._closed.is_set():
                    raise _closed()
                self._take_up()
                try:
                    yield
                finally:
                    self._take_up()
        finally:
            self._callers.pop()
            self._finish_ended()
            self._wake()

    def _wake(self) -> None:
        """Let those who found the lock held try again; one of them goes on driving."""
        for event in list(self._waiters.values()):
            event.set()

    def _take_up(self) -> None:
        """Queue who came and finish who ended."""
        while self._arrived:
            sequence = self._arrived.popleft()
            if self._closed.is_set():
                sequence.reader.fail(_closed())
            else:
                self._batcher.add(sequence)
        while self._ended:
            sequence = self._ended.popleft()
            if not self._closed.is_set():
                self._batcher.end(sequence)
            sequence.reader.abort()

    def _finish_ended(self) -> None:
        """Finish who ended while the lock was being given back, unless somebody has it."""
        while self._ended and self._lock.acquire(blocking=False):
            try:
                self._take_up()
            finally:
                self._lock.release()
                self._wake()


def _closed() -> InferenceError:
    return InferenceError("the model is closed: load it again")


def _num_blocks(model: CausalModel, config: InferenceConfig) -> int:
    if model.layout is None:
        return 0
    block_bytes = model.layout.block_bytes(config.block_size)
    chunk = [[0] * min(config.prefill_chunk, model.context_window or config.prefill_chunk)]
    kv_bytes = pool_bytes(
        config.kv_bytes, model.device, lambda: model.forward(chunk, model.new_cache())
    )
    # One more block is the null block.
    num_blocks = kv_bytes // block_bytes - 1
    if num_blocks < 1:
        raise ConfigError(
            f"kv_bytes {kv_bytes} holds less than two KV blocks of {block_bytes} "
            "bytes: raise InferenceConfig.kv_bytes or lower block_size"
        )
    return num_blocks
