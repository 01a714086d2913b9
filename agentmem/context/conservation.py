"""
The balance of the log: each message of each assembly is shown, or named by a record.

It reads only what was stored, so it checks the assembler and the store together.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from agentmem.context.spans import hidden, subtract
from agentmem.types import AssemblyId, AssemblyInfo, Span, TruncationRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Imbalance:
    """Positions of an assembly that are neither shown nor named, or accounted for twice."""

    assembly_id: AssemblyId
    spans: tuple[Span, ...]
    problem: str


def check_conservation(
    assemblies: Sequence[AssemblyInfo], records: Sequence[TruncationRecord]
) -> tuple[Imbalance, ...]:
    """
    Check one branch; an empty result is a log that balances.

    Args:
        assemblies: all of the branch, oldest first.
        records: all truncation records of the branch.
    """
    found: list[Imbalance] = []
    for assembly in assemblies:
        whole = (Span(first=1, last=assembly.head, tier=None),) if assembly.head else ()
        if missing := subtract(whole, assembly.layout):
            found.append(_imbalance(assembly, missing, "not in the layout"))
        length = sum(span.last - span.first + 1 for span in assembly.layout)
        if not missing and length != assembly.head:
            found.append(_imbalance(assembly, assembly.layout, "in the layout twice"))
        named = sorted(
            (
                Span(first=record.first, last=record.last, tier=None)
                for record in records
                if record.assembly_id is not None and record.assembly_id <= assembly.id
            ),
            key=lambda span: span.first,
        )
        if unnamed := subtract(hidden(assembly.layout), named):
            found.append(_imbalance(assembly, unnamed, "left out without a record"))
    return tuple(found)


def _imbalance(assembly: AssemblyInfo, spans: Sequence[Span], problem: str) -> Imbalance:
    return Imbalance(assembly_id=assembly.id, spans=tuple(spans), problem=problem)
