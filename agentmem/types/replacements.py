"""Statements that a later message replaced."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from agentmem.types.fields import Checked
from agentmem.types.messages import BranchId


class ReplacementAuthor(StrEnum):
    """Who found that a message replaces another: a rule of this package, or the caller."""

    RULE = "rule"
    CALLER = "caller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement(Checked):
    """
    A message whose statement is not valid any more, and the later message that replaced it.

    Both messages stay in the store, and in prompts.
    """

    branch_id: BranchId
    """The branch on which it was found or set."""

    old: int
    """Position of the replaced message."""

    new: int
    """Position of the message that replaced it, later than *old*."""

    author: ReplacementAuthor
    created_at: datetime
