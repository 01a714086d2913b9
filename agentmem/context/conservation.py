"""
Conservation check of the log: each message of each prompt is shown or recorded.

It reads only stored data, so it checks the assembler and the store together.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from agentmem.context.position_ranges import subtract
from agentmem.types import AssemblyId, AssemblyInfo, DisplayForm, Span, Tier, TruncationRecord
from agentmem.types.fields import Checked


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance(Checked):
    """Positions of a prompt that are missing, duplicate or unreadable."""

    assembly_id: AssemblyId | None
    """None for a problem of the messages themselves."""

    spans: tuple[Span, ...]
    problem: str


def check_conservation(
    assemblies: Sequence[AssemblyInfo],
    records: Sequence[TruncationRecord],
    summary_keys: AbstractSet[str] = frozenset(),
) -> tuple[Imbalance, ...]:
    """
    Check one branch; an empty result is a log that balances.

    Args:
        assemblies: all log entries of the branch, oldest first.
        records: all truncation records of the branch.
        summary_keys: keys of all summaries that the branch can show.
    """
    found: list[Imbalance] = []
    for assembly in assemblies:
        whole = (Span(first=1, last=assembly.head, tier=None),) if assembly.head else ()
        length = sum(span.last - span.first + 1 for span in assembly.layout)
        named = sorted(
            (
                Span(first=record.first, last=record.last, tier=None)
                for record in records
                if record.assembly_id is not None and record.assembly_id <= assembly.id
            ),
            key=lambda span: span.first,
        )
        cut = [span for span in assembly.layout if _is_cut(span)]
        covered = [span for span in assembly.layout if span.tier is Tier.SUMMARY]
        lost = [span for span in covered if span.source not in summary_keys]
        missing = subtract(whole, assembly.layout)
        problems = {
            "not in the layout": missing,
            "in the layout twice": assembly.layout if length > assembly.head else (),
            "left out without a record": subtract(cut, named),
            "covered by a missing summary": lost,
        }
        found += [
            Imbalance(assembly_id=assembly.id, spans=tuple(spans), problem=problem)
            for problem, spans in problems.items()
            if spans
        ]
    return tuple(found)


def _is_cut(span: Span) -> bool:
    """Return whether *span* is truncated or not shown."""
    return span.tier in (None, Tier.SUMMARY) or span.form is not DisplayForm.FULL
