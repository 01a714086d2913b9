"""A conversation assembled turn by turn on plain values: what `Memory` does, without a store."""

from dataclasses import replace
from itertools import count

from agentmem.context import (
    Assembler,
    BranchView,
    PreviousPrompt,
    RecalledGroup,
    check_conservation,
    group_turns,
)
from agentmem.protocols import Hit
from agentmem.testing import WordCounter
from agentmem.types import AssemblyId, AssemblyInfo, BranchId, Span, Tier
from tests.builders import NOON, stored


class Replay:
    def __init__(self, budget, pins=(), policy=None, counter=None):
        self.budget = budget
        self.counter = counter or WordCounter()
        self.assembler = Assembler(self.counter, budget, policy)
        self.pins = tuple(pins)
        self.messages = ()
        self.assemblies = []
        self.records = []
        self.summaries = {}
        self._ids = count(1)

    def say(self, *messages):
        self.messages += stored(*messages, start=len(self.messages) + 1)

    def assemble(self, hits=()):
        """Assemble for the state of now, and log it as the store does."""
        last = self.assemblies[-1] if self.assemblies else None
        layout = last.layout if last else ()
        keys = dict.fromkeys(s.source for s in layout if s.source is not None)
        view = BranchView(
            branch_id=BranchId(1),
            head=len(self.messages),
            pins=self.pins,
            turns=group_turns(self.messages),
            before=self._before(last) if last else None,
            recorded=layout,
            summaries=tuple(self.summaries[key] for key in keys),
            hits=tuple(hits),
            groups=self._groups(layout),
        )
        prompt = self.assembler.assemble(view)
        self._log(prompt)
        return prompt

    @staticmethod
    def _before(last):
        had_recalled = last.tokens_by_tier.get(Tier.RETRIEVED, 0) > 0
        return PreviousPrompt(layout=last.layout, pins=last.pins, had_recalled=had_recalled)

    def _groups(self, layout):
        anchors = sorted({s.anchor for s in layout if s.tier is Tier.RETRIEVED} - {None})
        return tuple(
            RecalledGroup(
                anchor=anchor,
                hits=tuple(
                    Hit(
                        stored=self.messages[s.first - 1],
                        score=0.0,
                        times=s.times,
                        passages=s.passages,
                        superseded_by=s.superseded_by,
                    )
                    for s in layout
                    if s.tier is Tier.RETRIEVED and s.anchor == anchor
                ),
            )
            for anchor in anchors
        )

    def hide(self, first, last, summary):
        """Log that *first* to *last* are in no summary, and *summary* in place of the one shown."""
        assembly = self.assemblies[-1]
        hidden = Span(first=first, last=last, tier=None)
        covered = Span(
            first=summary.first, last=summary.last, tier=Tier.SUMMARY, source=summary.key
        )
        layout = (hidden, covered, *(s for s in assembly.layout if s.tier is not Tier.SUMMARY))
        self.assemblies[-1] = replace(assembly, layout=layout)
        self.summaries[summary.key] = summary

    def check(self):
        return check_conservation(self.assemblies, self.records, set(self.summaries))

    def _log(self, prompt):
        assembly_id = AssemblyId(next(self._ids))
        self.records += [replace(r, assembly_id=assembly_id) for r in prompt.truncations]
        self.summaries |= {summary.key: summary for summary in prompt.summaries}
        self.assemblies.append(
            AssemblyInfo(
                id=assembly_id,
                branch_id=BranchId(1),
                head=prompt.head,
                tokens_by_tier=prompt.tokens_by_tier,
                layout=prompt.layout,
                prompt_hash=prompt.prompt_hash,
                pins=prompt.pins,
                context=prompt.context,
                reply=prompt.reply,
                fingerprint=prompt.fingerprint,
                created_at=NOON,
            )
        )
