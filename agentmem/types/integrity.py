"""Findings of a check of the store."""

from dataclasses import dataclass

from agentmem.types.fields import Checked
from agentmem.types.messages import BranchId
from agentmem.types.prompt import AssemblyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy(Checked):
    """Stored data that differs from what was written."""

    branch_id: BranchId
    position: int | None
    """Position of the message; None for a finding about the branch or the session."""
    problem: str
    assembly_id: AssemblyId | None = None
    """Id of the prompt in the log."""
