"""
A thread-safe engine: callers add requests, wait for tokens, and cancel at any time.

There is no engine thread. A caller waiting for a token runs engine steps for all requests; one
caller steps at a time. So no thread can leak, and there is no idle loop. A step holds the lock;
requests that are added or cancelled meanwhile are queued, and processed by the next holder of the
lock. For event loops, which must not run steps, one thread steps while any of them waits
(`async_driver`).

The failure of one thread does not affect others: the lock survives its holder (`step_lock`), and
after an interrupt or a failure outside of a forward pass the accounting is rebuilt from the tokens
that the readers of all requests have taken, and all requests continue.
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as TokenIds
from typing import TypeVar

import torch

from agentmem.config import InferenceConfig
from agentmem.errors import InferenceError, QueueFullError
from agentmem.inference.engine.admission import Admission
from agentmem.inference.engine.engine_core import EngineCore
from agentmem.inference.engine.scheduler import Limits, Scheduler
from agentmem.inference.engine.signal import Signal
from agentmem.inference.engine.stats import ModelStats
from agentmem.inference.engine.step_lock import LOOK_AGAIN_S, StepLock
from agentmem.inference.kv_cache.block_pool import BlockPool
from agentmem.inference.kv_cache.block_storage import KVBlockStorage
from agentmem.inference.kv_cache.pool_size import pool_bytes
from agentmem.inference.kv_cache.prefix_cache import PrefixCache
from agentmem.inference.kv_cache.sequence import Sequence, State
from agentmem.inference.kv_cache.usage import KVUsage
from agentmem.inference.runner.causal_model import CausalModel, OwnCache
from agentmem.inference.runner.memory_plan import MemoryPlan, plan_memory
from agentmem.inference.runner.model_runner import Runner
from agentmem.machine.device import compute_in_one_thread_in_forks
from agentmem.machine.logs import log, nature
from agentmem.types import ModelHealth

T = TypeVar("T")
_log = logging.getLogger(__name__)

_MAX_FAILURES = 3
"""Consecutive failures outside of a forward pass after which all running requests fail."""


class Engine:
    """
    One model and its KV pool.

    Args:
        model: the model to run.
        config: the sizes of the pool, of its blocks and of a step.
        fingerprint: identifies the weights; part of each block hash.
        context_window: maximum tokens of one sequence.
    """

    def __init__(
        self, model: CausalModel, config: InferenceConfig, *, fingerprint: str, context_window: int
    ) -> None:
        self._model = model
        self._config = config
        self._process = os.getpid()
        compute_in_one_thread_in_forks()
        self._lock = StepLock()
        self._is_torn = False
        self._num_failures = 0
        self._arrived: deque[Sequence] = deque()
        self._ended: deque[Sequence] = deque()
        self._waiters: dict[int, threading.Event] = {}
        # Threads waiting for the lock: a stepping thread would reacquire it at once and starve
        # them.
        self._callers: deque[None] = deque()
        self._has_yielded = False
        self._closed = threading.Event()
        # At process exit the library is torn down before the last streams, which must not touch
        # tensors then.
        weakref.finalize(self, self._closed.set)
        plan = _plan(model, config, context_window)
        self._pool = BlockPool(max(plan.num_blocks, 1))
        key = f"{fingerprint}:{model.dtype}:{config.weights}"
        self._prefixes = PrefixCache(self._pool, block_size=config.block_size, model=key)
        self._tensors: KVBlockStorage | None = None
        if model.layout is not None:
            self._tensors = KVBlockStorage(
                model.layout, block_size=config.block_size, num_blocks=plan.num_blocks
            )
        self._scheduler = Scheduler(_limits(config))
        self._admission = Admission(
            block_size=config.block_size,
            num_blocks=plan.num_blocks if self._tensors is not None else None,
            context_window=context_window,
            own_tokens=None if self._tensors else model.own_size.longest(plan.own_bytes),
        )
        self._runner = Runner(model, self._tensors, plan=plan)
        self._batcher = EngineCore(
            self._scheduler,
            self._admission,
            self._prefixes,
            self._runner,
            refusal=model.refusal,
        )

    def admit(self, num_prompt: int, max_tokens: int | None) -> int:
        """
        Return the maximum tokens to generate after a prompt of *num_prompt*. Does not block.

        Raises:
            AdmissionError: prompt and reply can never fit.
            QueueFullError: the queue of waiting requests is full.
            InferenceError: this process is a fork of the one that loaded the model.
        """
        self._require_own_process()
        free = self._prefixes.num_available
        waiting = len(self._scheduler.waiting) + len(self._arrived)
        try:
            allowed = self._admission.check(num_prompt, max_tokens, free=free)
            if waiting >= self._config.max_waiting:
                raise QueueFullError(waiting=waiting, limit=self._config.max_waiting)
        except InferenceError as error:
            log(
                _log,
                logging.WARNING,
                "request_refused",
                "a request was rejected: {error}",
                error=nature(error),
                num_prompt=num_prompt,
                num_waiting=waiting,
            )
            raise
        return allowed

    def add(self, sequence: Sequence) -> None:
        """Queue an admitted request. Does not block."""
        self._require_own_process()
        if self._closed.is_set():
            raise _closed()
        self._arrived.append(sequence)

    def step(self) -> bool:
        """Run one step for all sequences; return whether there was any work."""
        return self._exclusive(self._step)

    def drive(self, is_ready: Callable[[], bool], signal: Signal) -> None:
        """
        Run steps, alternating with other waiting threads, until *is_ready*.

        Args:
            is_ready: whether the caller's result is available.
            signal: set by the caller's reader when that may have changed.
        """
        event = threading.Event()
        key = signal.add(event.set)
        self._waiters[id(event)] = event
        try:
            while True:
                event.clear()
                if is_ready():
                    return
                self._require_own_process()
                if not self._try_step() and not event.wait(LOOK_AGAIN_S):
                    self._lock.replace_if_abandoned()
        finally:
            signal.remove(key)
            self._waiters.pop(id(event), None)
            self._wake()

    def cancel(self, sequence: Sequence) -> None:
        """
        End *sequence*, publish its computed blocks and release them. Idempotent.

        Does not block: the garbage collector may call it within a step of the same thread. If the
        lock is held, its holder finishes the work.
        """
        if os.getpid() != self._process:
            return  # a forked process: the request is the parent's
        self._ended.append(sequence)
        self._finish_ended()

    def discard(self, token_ids: TokenIds[int], *, num_kept: int, salt: str) -> int:
        """Evict the cache of *token_ids* after the first *num_kept*; return how many blocks."""
        if os.getpid() != self._process:
            return 0  # a forked process, which cannot use the cache
        return self._exclusive(
            lambda: self._prefixes.discard(token_ids, num_kept=num_kept, salt=salt)
        )

    def forget(self, *, salt: str) -> None:
        """Evict all blocks under *salt*, and zero them."""
        if os.getpid() != self._process:
            return  # a forked process, which cannot use the cache

        def work() -> None:
            freed = self._prefixes.forget(salt=salt)
            if self._tensors is not None:
                self._tensors.erase(freed)

        self._exclusive(work)

    def usage(self) -> KVUsage:
        """Return the usage of the KV pool."""
        return self._exclusive(self._usage)

    @property
    def kv_bytes(self) -> int:
        """Memory allocated by the pool so far, read without waiting for a step."""
        return self._tensors.num_bytes if self._tensors else 0

    def health(self, name: str) -> ModelHealth:
        """Return the current load, without waiting for the lock of a step."""
        if os.getpid() != self._process:
            return ModelHealth(name=name, is_closed=False, error=self._of_another_process())
        free, cached, in_use, total = self._blocks_now()
        return ModelHealth(
            name=name,
            is_closed=self._closed.is_set(),
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting) + len(self._arrived),
            kv_free=free,
            kv_cached=cached,
            kv_in_use=in_use,
            kv_total=total,
            kv_bytes=self.kv_bytes,
        )

    def stats(self) -> ModelStats:
        """Return the counters so far, without waiting for the lock of a step."""
        self._require_own_process()
        counters = self._batcher.counters
        free, cached, in_use, total = self._blocks_now()
        return ModelStats(
            # Read before the queries that they are part of.
            prefix_hit_tokens=counters.prefix_hit_tokens,
            prefix_query_tokens=counters.prefix_query_tokens,
            requests=counters.requests,
            passes=counters.passes,
            batched_passes=counters.batched_passes,
            prefill_tokens=counters.prefill_tokens,
            decode_tokens=counters.decode_tokens,
            evictions=self._prefixes.num_evicted,
            preemptions=counters.preemptions,
            forks=counters.forks,
            refused_reuse=dict(counters.refused_reuse),
            kv_free=free,
            kv_cached=cached,
            kv_in_use=in_use,
            kv_total=total,
            kv_bytes=self.kv_bytes,
        )

    def _blocks_now(self) -> tuple[int, int, int, int]:
        """Return free, cached, used and all blocks, read without the lock of a step."""
        total = self._pool.num_blocks if self._tensors else 0
        free = self._pool.num_free if self._tensors else 0
        cached = self._prefixes.num_cached
        # A step may have moved a block between the two.
        return free, cached, max(0, total - free - cached), total

    def check(self) -> None:
        """Assert the invariants of the accounting. For tests and idle loops."""
        self._exclusive(self._check)

    def close(self) -> None:
        """Release the memory; unfinished requests end with an error. Idempotent."""

        def work() -> None:
            self._closed.set()
            for sequence in self._batcher.alive():
                sequence.reader.fail(_closed())
                self._batcher.end(sequence)
            if self._tensors is not None:
                self._runner.reset()
                self._tensors.release()

        if os.getpid() == self._process and not self._closed.is_set():
            self._exclusive(work, even_closed=True)

    def _usage(self) -> KVUsage:
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
            run_bytes=self._runner.num_bytes(self._scheduler.running),
            max_run_bytes=self._runner.max_bytes,
        )

    def _check(self) -> None:
        self._prefixes.check(sequence.table for sequence in self._scheduler.running)
        for sequence in self._scheduler.running:
            assert sequence.num_written <= sequence.num_computed, "more written than computed"
            assert sequence.state is State.RUNNING, "an ended sequence runs"
        self._runner.check(self._scheduler.running)
        for sequence in self._scheduler.waiting:
            assert not sequence.table, "a waiting sequence holds blocks"

    def _step(self) -> bool:
        """
        Run a step. Interrupts propagate to the caller; other failures do not, and end no wait.

        A failed forward pass changes no state. Other failures may make the accounting inconsistent.
        """
        try:
            worked = self._batcher.step(time.monotonic())
        except Exception as error:  # noqa: BLE001 - it belongs to no one request: all start over
            self._num_failures += 1
            is_given_up = self._num_failures >= _MAX_FAILURES
            log(
                _log,
                logging.ERROR if is_given_up else logging.WARNING,
                "step_failed",
                "an engine step failed ({failures} consecutive failures): {error}",
                error=nature(error),
                failures=self._num_failures,
            )
            _log.debug("where it failed", exc_info=True)
            if is_given_up:
                self._batcher.fail_all(error)
                self._num_failures = 0
            self._batcher.is_torn = True
            return True
        self._num_failures = 0
        return worked

    def _try_step(self) -> bool:
        """Run a step, unless another thread runs one or has precedence, or there is no work."""
        if self._callers and not self._has_yielded:
            self._has_yielded = True
            return False
        ran, worked = self._lock.run(lambda: self._with_accounts(self._first_step), wait=False)
        self._finish_ended()
        return ran and bool(worked)

    def _first_step(self) -> bool:
        self._has_yielded = False
        return not self._closed.is_set() and self._step()

    def _exclusive(self, work: Callable[[], T], *, even_closed: bool = False) -> T:
        """
        Wait for the lock and run *work*, which must keep the accounting consistent or raise.

        Raises:
            InferenceError: the model is closed.
        """
        self._require_own_process()

        def locked() -> T:
            if self._closed.is_set() and not even_closed:
                raise _closed()
            return self._with_accounts(work)

        self._callers.append(None)
        try:
            _, result = self._lock.run(locked, wait=True)
        finally:
            self._callers.pop()
            self._finish_ended()
            self._wake()
        return result  # type: ignore[return-value]  # with waiting it always runs

    def _with_accounts(self, work: Callable[[], T]) -> T:
        """
        Run *work* on consistent accounting; process new and ended requests before and after.

        All tensors are created and changed in inference mode, which is per-thread state.
        """
        with torch.inference_mode():
            if self._is_torn or self._batcher.is_torn:
                self._batcher.reset()
            self._is_torn = True
            try:
                self._take_up()
                result = work()
                self._take_up()
            except BaseException:
                self._is_torn = not self._batcher.is_whole()
                raise
            self._is_torn = False
            return result

    def _wake(self) -> None:
        """Wake the threads that found the lock held; one of them continues stepping."""
        for event in list(self._waiters.values()):
            event.set()

    def _take_up(self) -> None:
        """
        Move new requests to the scheduler and finish cancelled ones.

        A request leaves its list only after processing, so that an interrupt loses none.
        """
        while self._arrived:
            sequence = self._arrived[0]
            if self._closed.is_set():
                sequence.reader.fail(_closed())
            else:
                self._batcher.add(sequence)
            self._arrived.popleft()
        while self._ended:
            sequence = self._ended[0]
            if not self._closed.is_set():
                _log_cancelled(sequence)
                self._batcher.end(sequence)
            sequence.reader.abort()
            self._ended.popleft()

    def _finish_ended(self) -> None:
        """Finish requests that ended during the release of the lock, unless it is held again."""
        while self._ended:
            ran, _ = self._lock.run(lambda: self._with_accounts(_nothing), wait=False)
            if not ran:
                return
            self._wake()

    def _require_own_process(self) -> None:
        if os.getpid() != self._process:
            raise self._of_another_process()

    def _of_another_process(self) -> InferenceError:
        return InferenceError(
            f"the model was loaded in process {self._process}, and this is its fork "
            f"{os.getpid()}: load it after the fork, or start workers with the spawn method"
        )


def _nothing() -> None:
    """No work: process the queued requests only."""


def _log_cancelled(sequence: Sequence) -> None:
    if sequence.is_alive and not sequence.reader.is_done:
        log(
            _log,
            logging.INFO,
            "request_cancelled",
            "a request was cancelled after {num_generated} tokens",
            num_prompt=sequence.num_prompt,
            num_generated=sequence.num_generated,
        )


def _closed() -> InferenceError:
    return InferenceError("the model is closed: load it again")


def _limits(config: InferenceConfig) -> Limits:
    return Limits(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        prefill_chunk=config.prefill_chunk,
    )


def _plan(model: CausalModel, config: InferenceConfig, context_window: int) -> MemoryPlan:
    chunk = [0] * min(config.prefill_chunk, model.context_window or config.prefill_chunk)
    if model.layout is None:
        own_bytes = pool_bytes(
            config.kv_bytes, model.device, lambda: model.forward_own(chunk, OwnCache())
        )
        return MemoryPlan(num_blocks=0, run_slots=0, own_bytes=own_bytes)
    kv_bytes = pool_bytes(
        config.kv_bytes, model.device, lambda: model.forward([chunk], model.new_cache())
    )
    return plan_memory(
        kv_bytes,
        block_bytes=model.layout.block_bytes(config.block_size),
        block_size=config.block_size,
        longest=context_window,
        max_num_seqs=config.max_num_seqs,
    )
