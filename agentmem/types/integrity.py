"""What a check of the store finds."""

from dataclasses import dataclass

from agentmem.types.fields import Checked
from agentmem.types.messages import BranchId
from agentmem.types.prompt import AssemblyId


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy(Checked):
    """Something stored that is not what was written."""

    branch_id: BranchId
    position: int | None
    """Of the message; None where it is about the branch or the session."""
    problem: str
    assembly_id: AssemblyId | None = None
    """Of the prompt whose account it is in the log."""
