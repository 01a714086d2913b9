"""What the model sees. Plain Python: no torch, no SQL."""

from agentmem.context.assembler import Assembler, BranchView, system_message
from agentmem.context.conservation import Imbalance, check_conservation
from agentmem.context.turns import group_turns, legal_fork, open_calls

__all__ = [
    "Assembler",
    "BranchView",
    "Imbalance",
    "check_conservation",
    "group_turns",
    "legal_fork",
    "open_calls",
    "system_message",
]
