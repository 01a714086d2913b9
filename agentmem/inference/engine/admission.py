"""
Admission control: which requests start, wait, or are rejected. Plain Python.

The maximum length of a request is known on arrival, and the actual lengths are observed. The
estimate moves from the worst case to the observed average, times a safety factor that grows after
a preemption, when the estimate was too low.
"""

import math

from agentmem.errors import AdmissionError
from agentmem.inference.kv_cache.sequence import Sequence

LOW_FACTOR, HIGH_FACTOR = 1.2, 1.5
_RAISE, _RELAX = 0.1, 0.01
_MEMORY = 0.05
"""Weight of the newest observation; the first estimate is the worst case, and decays with it."""


class Admission:
    """
    Estimates the blocks of requests.

    Args:
        block_size: tokens in a block.
        num_blocks: blocks of the pool; None without a pool.
        context_window: maximum tokens of one sequence.
        own_tokens: tokens that fit the memory of the model's own cache; None for no limit.
    """

    def __init__(
        self,
        *,
        block_size: int,
        num_blocks: int | None,
        context_window: int,
        own_tokens: int | None = None,
    ) -> None:
        self._block_size = block_size
        self._num_blocks = num_blocks
        self._context_window = context_window
        self._own_tokens = own_tokens
        self._share = 1.0
        self.factor = LOW_FACTOR

    def check(self, num_prompt: int, max_tokens: int | None, *, free: int) -> int:
        """
        Return the maximum tokens to generate after a prompt of *num_prompt*.

        Args:
            num_prompt: tokens of the prompt.
            max_tokens: requested tokens; None for as many as fit.
            free: blocks that are not in use at this moment, for the error message.

        Raises:
            AdmissionError: prompt and reply can never fit.
        """
        limit, reason = self._context_window, "the model's context window"
        if self._num_blocks is not None and self._num_blocks * self._block_size < limit:
            limit = self._num_blocks * self._block_size
            reason = "the KV pool (InferenceConfig.kv_bytes)"
        if self._own_tokens is not None and self._own_tokens < limit:
            limit = self._own_tokens
            reason = "the memory for its cache (InferenceConfig.kv_bytes)"
        needed = num_prompt + (1 if max_tokens is None else max_tokens)
        if needed > limit:
            raise AdmissionError(
                needed=needed,
                limit=limit,
                reason=reason,
                free=None if self._num_blocks is None else free * self._block_size,
            )
        return limit - num_prompt if max_tokens is None else max_tokens

    def expected_blocks(self, sequence: Sequence) -> int:
        """Return the expected final number of blocks of *sequence*."""
        share = min(self._share * self.factor, 1.0)
        num_new = max(math.ceil(share * sequence.max_tokens), sequence.num_generated)
        # The last token is sampled but never computed, so it needs no slot.
        last = sequence.num_prompt + max(num_new - 1, 0)
        return -(-max(last, len(sequence.token_ids)) // self._block_size)

    def observe(self, sequence: Sequence) -> None:
        """Update the estimate with the length of a finished request."""
        share = sequence.num_generated / sequence.max_tokens
        self._share += _MEMORY * (share - self._share)
        self.factor = max(self.factor - _RELAX, LOW_FACTOR)

    def preempted(self) -> None:
        """Raise the safety factor: the estimate was too low."""
        self.factor = min(self.factor + _RAISE, HIGH_FACTOR)
