"""
Runs sequences: match the prefix, prefill in chunks, decode, publish, give everything back.

Each step takes the engine's lock and leaves the accounts in order, so threads take turns step
by step and a stream that its reader left alone blocks nobody.
"""

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as TokenIds
from contextlib import contextmanager

from torch import Tensor

from agentmem.config import InferenceConfig
from agentmem.errors import AdmissionError, ConfigError, InferenceError, OutOfBlocksError
from agentmem.inference.block_pool import BlockPool
from agentmem.inference.causal_model import CausalModel
from agentmem.inference.kv_tensors import KVTensors
from agentmem.inference.kv_usage import KVUsage
from agentmem.inference.paged_cache import PagedCache
from agentmem.inference.prefix_cache import PrefixCache
from agentmem.inference.sequence import Sequence

_PATIENCE_S = 30.0
"""How long a request waits for blocks that other requests hold."""


class Engine:
    """
    One model and its KV pool.

    Args:
        model: the model to run.
        config: the size of the pool, of its blocks and of a prefill chunk.
        fingerprint: names the weights; part of each block's key.
        context_window: tokens that one sequence may have.
    """

    def __init__(
        self, model: CausalModel, config: InferenceConfig, *, fingerprint: str, context_window: int
    ) -> None:
        self._model = model
        self._config = config
        self._context_window = context_window
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended: deque[Sequence] = deque()
        self._refused: Counter[str] = Counter()
        self._reserved = 0
        self._closed = False
        num_blocks = self._num_blocks()
        self._pool = BlockPool(max(num_blocks, 1))
        key = f"{fingerprint}:{model.dtype}"
        self._prefixes = PrefixCache(self._pool, block_size=config.block_size, model=key)
        self._tensors: KVTensors | None = None
        if model.layout is not None:
            self._tensors = KVTensors(
                model.layout, block_size=config.block_size, num_blocks=num_blocks
            )

    @property
    def refused_reuse(self) -> Mapping[str, int]:
        """Why requests could not reuse a prefix, and how many."""
        return dict(self._refused)

    def admit(self, num_prompt: int, max_tokens: int | None) -> int:
        """
        Tell how many tokens may be generated after a prompt of *num_prompt*.

        Raises:
            AdmissionError: prompt and reply can never fit.
        """
        limit, reason = self._context_window, "the model's context window"
        capacity = self._pool.num_blocks * self._config.block_size
        if self._tensors is not None and capacity < limit:
            limit, reason = capacity, "the KV pool (InferenceConfig.kv_bytes)"
        needed = num_prompt + (1 if max_tokens is None else max_tokens)
        if needed > limit:
            raise AdmissionError(needed=needed, limit=limit, reason=reason)
        return limit - num_prompt if max_tokens is None else max_tokens

    def start(self, token_ids: TokenIds[int], *, max_tokens: int, salt: str) -> Sequence:
        """
        Take the blocks of a request and find what is cached of its prompt.

        Raises:
            OutOfBlocksError: other requests held too many blocks for too long.
        """
        with self._step():
            sequence = Sequence(
                token_ids=list(token_ids),
                num_prompt=len(token_ids),
                salt=salt,
                cache=self._model.new_cache(),
            )
            if self._tensors is None:
                self._refused[str(self._model.refusal)] += 1
            else:
                self._take_blocks(sequence, max_tokens)
        try:
            with self._step():
                self._load_prefix(sequence)
        except BaseException:
            self.end(sequence)
            raise
        return sequence

    def prefill(self, sequence: Sequence) -> Tensor:  # (vocab,)
        """Compute what is missing of the prompt; give the logits after it."""
        chunk = self._config.prefill_chunk if self._tensors else sequence.num_prompt
        while True:
            with self._step():
                end = min(sequence.num_computed + chunk, sequence.num_prompt)
                logits = self._compute(sequence, end)
                self._publish(sequence)
            if end == sequence.num_prompt:
                return logits

    def decode(self, sequence: Sequence, token_id: int) -> Tensor:  # (vocab,)
        """Append *token_id* and give the logits after it."""
        with self._step():
            sequence.token_ids.append(token_id)
            return self._compute(sequence, len(sequence.token_ids))

    def end(self, sequence: Sequence) -> None:
        """
        Publish what was computed and give the blocks back. Can be called twice.

        It never waits: it may be called by the garbage collector, in the middle of a step of
        the same thread. If the lock is held, whoever holds it finishes the work.
        """
        self._ended.append(sequence)
        if self._lock.acquire(blocking=False):
            try:
                self._drain()
            finally:
                self._lock.release()

    def discard(self, token_ids: TokenIds[int], *, keep: int, salt: str) -> int:
        """Drop what is cached of *token_ids* behind the first *keep*; tell how many blocks."""
        with self._step():
            return self._prefixes.discard(token_ids, keep=keep, salt=salt)

    def forget(self, *, salt: str) -> None:
        """Drop all that is cached under *salt*, and overwrite it with zeros."""
        with self._step():
            freed = self._prefixes.forget(salt=salt)
            if self._tensors is not None:
                self._tensors.erase(freed)

    def usage(self) -> KVUsage:
        """Tell where the blocks are."""
        with self._step():
            total = self._pool.num_blocks if self._tensors else 0
            free = self._pool.num_free if self._tensors else 0
            cached = self._prefixes.num_cached
            return KVUsage(
                free=free,
                cached=cached,
                in_use=total - free - cached,
                total=total,
                block_size=self._config.block_size,
                kv_bytes=self._tensors.num_bytes if self._tensors else 0,
            )

    def check(self) -> None:
        """Assert that the accounts agree. For tests and idle loops."""
        with self._step():
            self._prefixes.check()
            assert 0 <= self._reserved <= self._prefixes.num_available, "too much was promised"

    def close(self) -> None:
        """Give the memory back; whatever still runs ends with an error at its next step."""
        with self._step():
            self._closed = True
            if self._tensors is not None:
                self._tensors.release()
            self._changed.notify_all()

    def _num_blocks(self) -> int:
        if self._model.layout is None:
            return 0
        block_bytes = self._model.layout.block_bytes(self._config.block_size)
        # One more block is the null block.
        num_blocks = self._config.kv_bytes // block_bytes - 1
        if num_blocks < 1:
            raise ConfigError(
                f"kv_bytes {self._config.kv_bytes} holds less than two KV blocks of {block_bytes} "
                "bytes: raise InferenceConfig.kv_bytes or lower block_size"
            )
        return num_blocks

    @contextmanager
    def _step(self) -> Iterator[None]:
        """Hold the lock, with the work of ended sequences done before and after."""
        with self._lock:
            if self._closed:
                raise InferenceError("the model is closed: load it again")
            self._drain()
            try:
                yield
            finally:
                self._drain()

    def _drain(self) -> None:
        """Finish the sequences that ended."""
        while self._ended:
            sequence = self._ended.popleft()
            if sequence.ended or self._closed:
                continue
            sequence.ended = True
            try:
                self._publish(sequence)
            finally:
                self._prefixes.release(sequence.table)
                self._reserved -= sequence.reserved
                self._changed.notify_all()

    def _take_blocks(self, sequence: Sequence, max_tokens: int) -> None:
        # The last token is chosen and never computed, so it needs no slot.
        last = sequence.num_prompt + max_tokens - 1
        size = self._config.block_size

        def fits() -> bool:
            self._drain()
            return self._closed or self._try_blocks(sequence, -(-last // size))

        if not self._changed.wait_for(fits, timeout=_PATIENCE_S):
            raise OutOfBlocksError(
                needed=-(-last // size),
                free=self._prefixes.num_available - self._reserved,
                total=self._pool.num_blocks,
            )
        if self._closed:
            raise InferenceError("the model is closed: load it again")

    def _try_blocks(self, sequence: Sequence, num_blocks: int) -> bool:
        """Hold the cached prefix and reserve the rest of *num_blocks*, or leave all as it was."""
        hits = self._prefixes.match(sequence.token_ids, salt=sequence.salt)
        missing = num_blocks - len(hits)
        if missing > self._prefixes.num_available - self._reserved:
            self._prefixes.release(hits)
            return False
        sequence.table = hits
        sequence.reserved = missing
        self._reserved += missing
        sequence.num_published = len(hits)
        sequence.num_cached = len(hits) * self._config.block_size
        return True

    def _load_prefix(self, sequence: Sequence) -> None:
        if sequence.num_cached and isinstance(sequence.cache, PagedCache) and self._tensors:
            assert self._model.layout is not None, "there are tensors, so there is a layout"
            sequence.cache.load(
                self._tensors, self._model.layout, sequence.table, length=sequence.num_cached
            )
            sequence.num_computed = sequence.num_cached

    def _compute(self, sequence: Sequence, end: int) -> Tensor:
        """Run the model up to position *end*, with a block for each position."""
        if self._tensors is not None:
            missing = -(-end // self._config.block_size) - len(sequence.table)
            if missing > 0:
                sequence.table += self._prefixes.allocate(missing)
                sequence.reserved -= missing
                self._reserved -= missing
        logits = self._model.forward(
            sequence.token_ids[sequence.num_computed : end], sequence.cache
        )
        sequence.num_computed = end
        return logits

    def _publish(self, sequence: Sequence) -> None:
        """Write whole blocks that are new to the pool, then let others find them."""
        if self._tensors is None or not isinstance(sequence.cache, PagedCache):
            return
        full = sequence.num_computed // self._config.block_size
        if full <= sequence.num_published:
            return
        new = sequence.table[sequence.num_published : full]
        sequence.cache.save(self._tensors, new, first=sequence.num_published)
        sequence.table[:full] = self._prefixes.insert(
            sequence.token_ids[: full * self._config.block_size],
            sequence.table[:full],
            salt=sequence.salt,
        )
        sequence.num_published = full
