"""What a check of a session finds, and the links that its chains pass as they are computed anew."""

from collections.abc import Callable
from dataclasses import dataclass, field

from agentmem.store.chain.log_chain import Purged
from agentmem.store.chain.summary_chain import Sealed
from agentmem.types import AssemblyId, BranchId, Discrepancy

Place = tuple[int, int]
"""How many messages and events of a branch stand before a link."""

Keep = Callable[[int], frozenset[Place]]
"""Which links of a branch are to be kept, by its index in the session."""


@dataclass
class Findings:
    """What was found, and what the entries of the chains say that there must be."""

    found: list[Discrepancy] = field(default_factory=list)
    lost: list[Discrepancy] = field(default_factory=list)
    """What was damaged before it was imported, and says so itself."""
    passed: dict[int, dict[Place, bytes]] = field(default_factory=dict)
    at_position: dict[tuple[int, int], bytes | None] = field(default_factory=dict)
    pins: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Versions of pins, by their hashes: the branch, and how many messages it had."""
    summaries: dict[int, dict[str, Sealed]] = field(default_factory=dict)
    purged: dict[int, Purged] = field(default_factory=dict)
    logged: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """The links of the log of each branch, by how many entries stand before them."""
    user: list[bytes] = field(default_factory=list)
    """The links of the user's chain."""

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
        """Add what was lost before."""
        one = Discrepancy(branch_id=BranchId(branch_id), position=position, problem=problem)
        self.lost.append(one)
