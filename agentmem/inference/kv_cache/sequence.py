"""A sequence: one request's tokens, blocks and progress. Plain Python."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from agentmem.inference.kv_cache.block_pool import BlockId


class State(Enum):
    """State of a sequence."""

    WAITING = "waiting"
    """Queued; holds no blocks."""

    RUNNING = "running"
    FORKING = "forking"
    """Waits for the prompt of its parent, of which it is a fork."""

    ENDED = "ended"


class Reader(Protocol):
    """Consumer of a sequence's logits: samples one token per step."""

    @property
    def is_done(self) -> bool:
        """Whether the sequence has ended."""
        ...

    @property
    def taken(self) -> "list[int] | None":
        """The tokens taken so far; None after an interrupt while taking one."""
        ...

    def take(self, logits: Any) -> int | None:  # (vocab,)
        """Sample the next token; None when it completes the sequence."""
        ...

    def fail(self, error: BaseException) -> None:
        """Handle the end of the sequence."""
        ...

    def abort(self) -> None:
        """Handle the cancellation of the request. Must not block."""
        ...

    def expire(self) -> None:
        """Handle the expiry of the deadline."""
        ...


@dataclass(slots=True, eq=False)
class Sequence:
    """
    The state of one request while it waits and runs.

    *num_missing* tokens are to be computed before the next one: 1 in decode, more in prefill.
    """

    token_ids: list[int]
    num_prompt: int
    max_tokens: int
    reader: Reader
    salt: str = ""
    priority: int = 0
    cache_priority: int = 0
    """Eviction priority of its blocks: lower ones are evicted first."""

    arrived: float = 0.0
    """Arrival time, by the engine's clock."""

    deadline: float | None = None
    keys: Items[bytes] = ()
    """Hashes of the prompt's blocks: equal for the same tokens after the same prefix."""

    parent: "Sequence | None" = None
    state: State = State.WAITING
    own_cache: Any = None
    """State of a model without block reuse."""

    run: Any = None
    """The batch whose buffers hold its newest keys and values."""

    table: list[BlockId] = field(default_factory=list)
    num_cached: int | None = None
    """Prompt tokens that were cached when it first started."""

    num_computed: int = 0
    """Tokens whose keys and values exist, in blocks or in the batch's buffers."""

    num_written: int = 0
    """Tokens whose keys and values are in its blocks."""

    num_published: int = 0
    """Number of leading blocks that are published in the prefix cache."""

    num_preempted: int = 0
    num_passed: int = 0
    """Times that a later request started before it."""

    @property
    def num_missing(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def is_decoding(self) -> bool:
        """Whether it is decoding: one token to compute, in a batch with buffers."""
        return self.num_missing == 1 and self.num_computed > 0

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self.state in (State.WAITING, State.RUNNING)

    def restart(self) -> None:
        """Discard the computed state; all tokens are kept, generated ones too."""
        self.table = []
        self.run = self.own_cache = None
        self.num_computed = self.num_written = self.num_published = 0


Batch = list[tuple[Sequence, int]]
"""Sequences, and the number of tokens of each in the next forward pass."""
