"""Prompt assembly. Plain Python: no torch, no SQL."""

from agentmem.context.assembler import Assembler, BranchView, summarize_all
from agentmem.context.compaction import author_of, checked_summary
from agentmem.context.conservation import Imbalance, check_conservation
from agentmem.context.diff import PromptDiff, diff
from agentmem.context.draft import RecalledGroup, pinned_message
from agentmem.context.extractive import ExtractiveSummarizer
from agentmem.context.model_summary import ModelSummarizer
from agentmem.context.pack_hits import distinct
from agentmem.context.policy import DiscardOldResults, PinTask, Policy
from agentmem.context.replaced_statements import num_earlier, replaced_statements
from agentmem.context.reuse import PreviousPrompt
from agentmem.context.slide_window import MAX_LEFT
from agentmem.context.turns import group_turns, is_answer, legal_fork, open_calls

__all__ = [
    "MAX_LEFT",
    "Assembler",
    "BranchView",
    "DiscardOldResults",
    "ExtractiveSummarizer",
    "Imbalance",
    "ModelSummarizer",
    "PinTask",
    "Policy",
    "PreviousPrompt",
    "PromptDiff",
    "RecalledGroup",
    "author_of",
    "check_conservation",
    "checked_summary",
    "diff",
    "distinct",
    "group_turns",
    "is_answer",
    "legal_fork",
    "num_earlier",
    "open_calls",
    "pinned_message",
    "replaced_statements",
    "summarize_all",
]
