"""
An engine that many threads share: they add requests, wait for tokens, and leave when they like.

A caller that waits for a token runs steps for all requests; one caller steps at a time. So there
is no thread that could leak, and no idle loop. A step holds the lock; requests that come or end in
the meantime are put aside and taken up with the lock held. Event loops, which must not run steps,
have one thread that steps for them while any of them waits (`async_driver`).

Nothing that happens to a thread in here may harm another: the lock survives its holder
(`step_lock`), and after an interrupt or a failure outside of a pass the accounts are made anew,
from what the readers of all requests have taken, and every request goes on.
"""

import logging
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from collections.abc import Sequence as TokenIds
from typing import TypeVar

import torch

from agentmem.config import InferenceConfig
from agentmem.errors import InferenceError, QueueFullError
from agentmem.inference.engine.admission import Admission
from agentmem.inference.engine.engine_core import EngineCore
from agentmem.inference.engine.scheduler import Limits, Scheduler
from agentmem.inference.engine.signal import Signal
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
"""Steps in a row that fail outside of a request's own pass before all that run are given up."""


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
        self._process = os.getpid()
        compute_in_one_thread_in_forks()
        self._lock = StepLock()
        self._is_torn = False
        self._num_failures = 0
        self._arrived: deque[Sequence] = deque()
        self._ended: deque[Sequence] = deque()
        self._waiters: dict[int, threading.Event] = {}
        # Threads that wait for the lock: a thread that steps takes it back at once, and would
        # never let them have it.
        self._callers: deque[None] = deque()
        self._has_yielded = False
        self._closed = threading.Event()
        # When the process ends, the library is taken apart before the last streams are: they are
        # to touch no tensor then.
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
        Return how many tokens may be generated after a prompt of *num_prompt*. It never waits.

        Raises:
            AdmissionError: prompt and reply can never fit.
            QueueFullError: too many requests wait already.
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
        """Put an admitted request into the queue. It never waits."""
        self._require_own_process()
        if self._closed.is_set():
            raise _closed()
        self._arrived.append(sequence)

    def step(self) -> bool:
        """Take one step for all sequences; return whether there was anything to do."""
        return self._exclusive(self._step)

    def drive(self, is_ready: Callable[[], bool], signal: Signal) -> None:
        """
        Take steps, in turn with other threads that wait, until *is_ready*.

        Args:
            is_ready: whether the caller has what it waits for.
            signal: set by the caller's reader when that may be so.
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
        End *sequence*, publish what it computed and give its blocks back. Can be called twice.

        It never waits: it may be called by the garbage collector, in the middle of a step of
        the same thread. If the lock is held, its holder finishes the work.
        """
        if os.getpid() != self._process:
            return  # a fork: the request is the parent's
        self._ended.append(sequence)
        self._finish_ended()

    def discard(self, token_ids: TokenIds[int], *, num_kept: int, salt: str) -> int:
        """Drop what is cached of *token_ids* after the first *num_kept*; return how many blocks."""
        if os.getpid() != self._process:
            return 0  # a fork, which can use nothing of it
        return self._exclusive(
            lambda: self._prefixes.discard(token_ids, num_kept=num_kept, salt=salt)
        )

    def forget(self, *, salt: str) -> None:
        """Drop all that is cached under *salt*, and overwrite it with zeros."""
        if os.getpid() != self._process:
            return  # a fork, which can use nothing of it

        def work() -> None:
            freed = self._prefixes.forget(salt=salt)
            if self._tensors is not None:
                self._tensors.erase(freed)

        self._exclusive(work)

    def usage(self) -> KVUsage:
        """Return where the blocks are."""
        return self._exclusive(self._usage)

    @property
    def kv_bytes(self) -> int:
        """Memory that the pool has taken so far, read without waiting for a step."""
        return self._tensors.num_bytes if self._tensors else 0

    def health(self, name: str) -> ModelHealth:
        """Return what is done at this moment, without waiting for the lock of a step."""
        if os.getpid() != self._process:
            return ModelHealth(name=name, is_closed=False, error=self._of_another_process())
        tensors = self._tensors
        total = self._pool.num_blocks if tensors else 0
        free = self._pool.num_free if tensors else 0
        cached = self._prefixes.num_cached
        return ModelHealth(
            name=name,
            is_closed=self._closed.is_set(),
            num_running=len(self._scheduler.running),
            num_waiting=len(self._scheduler.waiting) + len(self._arrived),
            kv_free=free,
            kv_cached=cached,
            # A step may have moved a block between the two.
            kv_in_use=max(0, total - free - cached),
            kv_total=total,
            kv_bytes=self.kv_bytes,
        )

    def check(self) -> None:
        """Assert that the accounts agree. For tests and idle loops."""
        self._exclusive(self._check)

    def close(self) -> None:
        """Free the memory; what still runs or waits ends with an error. Can be called twice."""

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
        Take a step. An interrupt is the caller's; what fails is not, and ends no wait by itself.

        A pass that fails leaves nothing behind. Anywhere else the accounts may be half written.
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
        """Take a step, unless another thread is in one or comes first, or there is no work."""
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
        Wait for the lock and run *work*, which must leave the accounts whole or raise.

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
        return result  # type: ignore[return-value]  # it ran, since it waited

    def _with_accounts(self, work: Callable[[], T]) -> T:
        """
        Run *work* on whole accounts, with the requests that came and ended taken up around it.

        All tensors are made and changed in inference mode, which is a state of each thread.
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
        """Wake the threads that found the lock held; one of them goes on stepping."""
        for event in list(self._waiters.values()):
            event.set()

    def _take_up(self) -> None:
        """
        Move new requests to the queue and finish cancelled ones.

        One is taken off its list when it is done with: it is not lost to an interrupt.
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
        """Finish requests that ended while the lock was given back, unless it is held again."""
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
    """Only what is put aside is taken up."""


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
