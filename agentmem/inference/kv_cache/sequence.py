"""One request as the engine sees it: its tokens, its blocks and how far it is. Plain Python."""

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from agentmem.inference.kv_cache.block_pool import BlockId


class State(Enum):
    """Where a sequence is in its life."""

    WAITING = "waiting"
    """In the queue; holds no blocks."""

    RUNNING = "running"
    FORKING = "forking"
    """Waits for the prompt of the sequence that it is a fork of."""

    ENDED = "ended"


class Reader(Protocol):
    """Who takes what the model says after each token of a sequence."""

    @property
    def is_done(self) -> bool:
        """Whether nothing more will come."""
        ...

    @property
    def taken(self) -> "list[int] | None":
        """The tokens taken so far; None if it was interrupted while it took one."""
        ...

    def take(self, logits: Any) -> int | None:  # (vocab,)
        """Choose the next token; None when the sequence is complete with it."""
        ...

    def fail(self, error: BaseException) -> None:
        """Hear that nothing more will come."""
        ...

    def abort(self) -> None:
        """Hear that the request was cancelled. It must not wait."""
        ...

    def expire(self) -> None:
        """Hear that the deadline has passed."""
        ...


@dataclass(slots=True, eq=False)
class Sequence:
    """
    What one request holds while it waits and runs.

    It is *num_missing* tokens away from its next one: one while it decodes, more before.
    """

    token_ids: list[int]
    num_prompt: int
    max_tokens: int
    reader: Reader
    salt: str = ""
    priority: int = 0
    cache_priority: int = 0
    """How long its blocks outlive others in the cache: those of a lower number go first."""

    arrived: float = 0.0
    """When it came, by the engine's clock."""

    deadline: float | None = None
    keys: Items[bytes] = ()
    """Names of the prompt's blocks; equal names hold the same tokens behind the same prefix."""

    parent: "Sequence | None" = None
    state: State = State.WAITING
    own_cache: Any = None
    """What a model without block reuse keeps."""

    run: Any = None
    """The run whose buffers hold its newest keys and values."""

    table: list[BlockId] = field(default_factory=list)
    num_cached: int | None = None
    """Prompt tokens that were found in the cache when it first began."""

    num_computed: int = 0
    """Tokens whose keys and values exist, in blocks or in the run's buffers."""

    num_written: int = 0
    """Tokens whose keys and values are in its blocks."""

    num_published: int = 0
    """Blocks, from the first on, that the prefix cache knows."""

    num_preempted: int = 0
    num_passed: int = 0
    """How often a request that came later has begun before it."""

    @property
    def num_missing(self) -> int:
        return len(self.token_ids) - self.num_computed

    @property
    def num_generated(self) -> int:
        return len(self.token_ids) - self.num_prompt

    @property
    def is_decoding(self) -> bool:
        """Return whether it is one token behind, in a run that can go on."""
        return self.num_missing == 1 and self.num_computed > 0

    @property
    def is_alive(self) -> bool:
        """Whether it waits or runs."""
        return self.state in (State.WAITING, State.RUNNING)

    def restart(self) -> None:
        """Forget what was computed; the tokens stay, generated ones too."""
        self.table = []
        self.run = self.own_cache = None
        self.num_computed = self.num_written = self.num_published = 0


Batch = list[tuple[Sequence, int]]
"""Sequences, and how many tokens of each the next pass computes."""
