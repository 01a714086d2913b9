"""A conversation assembled turn by turn on plain values: what `Memory` does, without a store."""

from dataclasses import replace
from itertools import count

from agentmem.context import Assembler, BranchView, group_turns
from agentmem.testing import WordCounter
from agentmem.types import AssemblyId, AssemblyInfo, BranchId, Tier
from tests.builders import NOON, stored


class Replay:
    def __init__(self, budget, pins=()):
        self.assembler = Assembler(WordCounter(), budget)
        self.pins = tuple(pins)
        self.messages = ()
        self.assemblies = []
        self.records = []
        self._ids = count(1)

    def say(self, *messages):
        self.messages += stored(*messages, start=len(self.messages) + 1)

    def assemble(self):
        """Assemble for the state of now, and log it as the store does."""
        last = self.assemblies[-1] if self.assemblies else None
        view = BranchView(
            branch_id=BranchId(1),
            head=len(self.messages),
            pins=self.pins,
            turns=group_turns(self.messages),
            window_start=_window_start(last),
            recorded=tuple(s for s in last.layout if s.tier is None) if last else (),
        )
        prompt = self.assembler.assemble(view)
        assembly_id = AssemblyId(next(self._ids))
        self.records += [replace(r, assembly_id=assembly_id) for r in prompt.truncations]
        self.assemblies.append(
            AssemblyInfo(
                id=assembly_id,
                branch_id=BranchId(1),
                head=prompt.head,
                tokens_by_tier=prompt.tokens_by_tier,
                layout=prompt.layout,
                prompt_hash=prompt.prompt_hash,
                context=prompt.context,
                reply=prompt.reply,
                fingerprint=prompt.fingerprint,
                created_at=NOON,
            )
        )
        return prompt


def _window_start(last):
    if last is None:
        return None
    shown = (s.first for s in last.layout if s.tier in (Tier.RECENT, Tier.CURRENT))
    return next(shown, last.head + 1)
