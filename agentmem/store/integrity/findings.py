"""Findings of a check of a session, and the recomputed links of its chains."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.store.chain.log_chain import Purged
from agentmem.store.chain.summary_chain import Sealed
from agentmem.types import AssemblyId, BranchId, Discrepancy

Place = tuple[int, int]
"""Numbers of messages and events of a branch before a link."""

Keep = Callable[[int], frozenset[Place]]
"""The links of a branch to keep, by its index in the session."""


@dataclass
class Findings:
    """The findings, and the data that the chains require."""

    found: list[Discrepancy] = field(default_factory=list)
    lost: list[Discrepancy] = field(default_factory=list)
    """Messages that were corrupt before their import, and marked so."""
    passed: dict[int, dict[Place, bytes]] = field(default_factory=dict)
    at_position: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    pins: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Versions of pins by hash: the branch, and its number of messages."""
    summaries: dict[int, dict[str, Sealed]] = field(default_factory=dict)
    replacements: dict[int, set[str]] = field(default_factory=dict)
    """Replacements of each branch, by hash."""
    purged: dict[int, Purged] = field(default_factory=dict)
    logged: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """The links of each branch's log, by the number of preceding entries."""
    user: list[bytes] = field(default_factory=list)
    """Links of the user's chain."""

    def say(
        self, branch_id: int, position: int | None, problem: str, *, prompt: int | None = None
    ) -> None:
        """Add one discrepancy."""
        one = Discrepancy(
            branch_id=BranchId(branch_id),
            position=position,
            problem=problem,
            assembly_id=None if prompt is None else AssemblyId(prompt),
        )
        self.found.append(one)

    def lose(self, branch_id: int, position: int, problem: str) -> None:
        """Add a message that was lost before."""
        one = Discrepancy(branch_id=BranchId(branch_id), position=position, problem=problem)
        self.lost.append(one)
