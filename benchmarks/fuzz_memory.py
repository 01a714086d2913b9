"""
Play a random session of a `Memory`, as an agent might drive it, and check each prompt of it.

Parallel calls are answered in any order, in part, late or never; subtasks of each kind promote
texts and results; pins come and go, messages are deleted, questions are asked again, pictures and
thoughts are sent. Half of the sessions recall by words.
"""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from fuzz_checks import Said, check_prompt
from fuzz_talk import Talk

from agentmem import Memory
from agentmem.config import Budget
from agentmem.context import DiscardOldResults, PinTask, Policy
from agentmem.errors import (
    AgentMemError,
    ContextOverflowError,
    InvalidInputError,
    PinNotFoundError,
    TranscriptError,
)
from agentmem.retrieval import HybridRetriever
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import Inherit, Message, Origin, PinScope, Role

_DEPTH = 2
_COUNTER = WordCounter()


@cache
def _memory(number: int, policy: Policy, *, recalls: bool) -> Memory:
    """Return a memory that some sessions share: making tables takes longer than a session."""
    assert number >= 0
    retriever = HybridRetriever() if recalls else None
    model = ScriptedModel([f"a Aq{i}z the answer" for i in range(10**6, 10**6 + 5000)])
    return Memory.open("sqlite://", model=model, policy=policy, retriever=retriever)


_POLICIES = (
    Policy(),
    Policy(keep_recalled=True),
    Policy(summarizer=None),
    Policy(discardable=DiscardOldResults()),
    Policy(recall_sessions=True),
    Policy(auto_pin=PinTask(max_chars=200)),
)


class Player:
    """Plays one branch and its subtasks; all of a session share their *faults*."""

    def __init__(self, branch: Any, talk: Talk, budget: Budget, faults: Counter[str]) -> None:
        self.branch = branch
        self.talk = talk
        self.budget = budget
        self.faults = faults
        self.rng = talk.rng
        self.floor = 0
        """Position up to which the branch does not see its parent's messages."""

    def play(self, steps: int, depth: int = 0) -> None:
        """Take *steps* random steps, with a prompt after most of them."""
        moves: Sequence[tuple[Callable[[], None], int]] = (
            (self.ask, 10),
            (self.answer, 8),
            (self.call, 8),
            (self.finish_calls, 8),
            (self.answer_one_call, 4),
            (self.answer_late, 2),
            (self.change_pins, 2),
            (self.supersede, 2),
            (self.delete, 1 if depth == 0 else 0),
            (self.edit, 1 if depth == 0 else 0),
            (self.regenerate, 1 if depth == 0 else 0),
            (lambda: self.subtask(depth), 3 if depth < _DEPTH else 0),
            (self.slide, 1),
            (self.repeat, 1),
            (self.reply, 3),
            (self.retry, 1),
        )
        if self.rng.random() < 0.9:
            self.ask()
        else:
            self.answer()  # a greeting
        for _ in range(steps):
            (move,) = self.rng.choices([m for m, _ in moves], [weight for _, weight in moves])
            move()
            if self.rng.random() < 0.7:
                self.check()

    def waiting(self) -> tuple[list[str], list[str]]:
        """Return the calls that wait for a result, and those that the talk went on without."""
        made: list[str] = []
        closed: list[str] = []
        for stored in self.branch.messages(self.floor + 1):
            if stored.message.tool_calls:
                made = [call.id for call in stored.message.tool_calls]
            elif (call_id := stored.message.tool_call_id) is None:
                continue
            elif stored.origin is Origin.SYNTHETIC:
                closed.append(call_id)
            elif call_id in closed:
                closed.remove(call_id)
            if stored.message.tool_call_id in made:
                made.remove(stored.message.tool_call_id or "")
        return made, closed

    def say(self, message: Message) -> None:
        self.branch.append(
            message.role,
            message.parts,
            tool_calls=message.tool_calls,
            tool_call_id=message.tool_call_id,
            name=message.name,
        )

    def ask(self) -> None:
        self.say(self.talk.user(self.talk.size()))

    def answer(self) -> None:
        self.say(self.talk.answer(self.talk.size() // 2))

    def repeat(self) -> None:
        """Ask the same again and again, and answer the same."""
        question, answer = self.talk.user(8), self.talk.answer(6)
        for _ in range(self.rng.randrange(3, 12)):
            self.say(question)
            self.say(answer)

    def reply(self) -> None:
        """Let the model answer what stands last, be it a question, a result or an open call."""
        text = self.talk.question(self.talk.size()) if self.rng.random() < 0.5 else None
        try:
            reply = self._prompt(lambda: self.branch.reply(text, budget=self.budget))
        except InvalidInputError:
            self.faults["nothing_asked"] += text is None
            self.faults["wrong_errors"] += text is not None
            return
        if reply is not None:
            self.faults["prompts"] += 1
            self.faults.update(check_prompt(reply.prompt, self._said(reply.prompt.head)))

    def retry(self) -> None:
        """Say the same twice under one client key."""
        text, key = self.talk.question(self.talk.size()), self.talk.mark("U")
        once = self.branch.append("user", text, client_key=key)
        again = self.branch.append("user", text, client_key=key)
        self.faults["wrong_errors"] += once.position != again.position

    def call(self) -> None:
        self.say(self.talk.calling())

    def finish_calls(self) -> None:
        waiting, _ = self.waiting()
        self.rng.shuffle(waiting)
        for call_id in waiting:
            self.say(self.talk.result(call_id))

    def answer_one_call(self) -> None:
        waiting, _ = self.waiting()
        if waiting:
            self.say(self.talk.result(self.rng.choice(waiting)))

    def answer_late(self) -> None:
        _, closed = self.waiting()
        if closed:
            try:
                self.say(self.talk.result(self.rng.choice(closed)))
            except TranscriptError:
                self.faults["late_refused"] += 1

    def change_pins(self) -> None:
        key = self.rng.choice(("role", "limit"))
        scope = self.rng.choice((PinScope.SESSION, PinScope.BRANCH))
        large = self.rng.random() < 0.2
        words = self.rng.randrange(1, max(2, self.talk.window // (2 if large else 10)))
        try:
            if self.rng.random() < 0.6:
                self.branch.pin(key, f"p {self.talk.text('N', words)}", scope=scope)
            elif self.rng.random() < 0.5:
                self.branch.unpin(key, scope=scope)
            else:
                self.branch.undo_pin(key, scope=scope)
        except PinNotFoundError:
            self.faults["no_pin"] += 1

    def supersede(self) -> None:
        """Mark a message as replaced, or remove a mark."""
        there = [s.position for s in self.branch.messages() if s.origin is not Origin.DELETED]
        marked = [one.old for one in self.branch.replacements()]
        if marked and self.rng.random() < 0.3:
            self.branch.unsupersede(self.rng.choice(marked))
        elif len(there) > 1:
            old, new = sorted(self.rng.sample(there, 2))
            self.branch.supersede(old, new)

    def delete(self) -> None:
        head = self.branch.branch.head
        if head:
            self.branch.delete_message(self.rng.randrange(1, head + 1))

    def edit(self) -> None:
        """Say an earlier question in another way, and go on from there."""
        asked = [one.position for one in self.branch.messages() if one.message.role is Role.USER]
        if asked:
            text = self.talk.question(self.talk.size())
            self.branch.edit(self.rng.choice(asked), text)

    def regenerate(self) -> None:
        try:
            reply = self._prompt(lambda: self.branch.regenerate(budget=self.budget))
        except InvalidInputError:
            self.faults["nothing_asked"] += 1
            return
        if reply is not None:
            self.faults["prompts"] += 1
            self.faults.update(check_prompt(reply.prompt, self._said(reply.prompt.head)))

    def slide(self) -> None:
        self._prompt(lambda: self.branch.compact(budget=self.budget))

    def subtask(self, depth: int) -> None:
        inherit = self.rng.choice(tuple(Inherit))
        task = self.branch.subtask(f"t{self.talk.mark('P')}", inherit=inherit)
        player = Player(task, self.talk, self.budget, self.faults)
        player.floor = self.floor if inherit is Inherit.ALL else task.branch.forked_at
        player.play(self.rng.randrange(1, 6), depth + 1)
        player.check()
        if self.rng.random() < 0.2:
            # The parent goes on while its subtask works.
            self.rng.choice((self.ask, self.answer_one_call))()
        if self.rng.random() < 0.15:
            task.discard()
            return
        if self.rng.random() < 0.7:
            task.promote(f"a {self.talk.text('P', self.rng.randrange(1, 30))}")
        waiting, closed = self.waiting()
        if (waiting or closed) and self.rng.random() < 0.6:
            call_id = self.rng.choice([*waiting, *closed[:1]])
            task.promote(self.talk.result(call_id).text or "nothing", tool_call_id=call_id)
        try:
            task.end()
        except TranscriptError:
            self.faults["wrong_errors"] += 1
            task.discard()

    def check(self) -> None:
        """Assemble twice and check what came."""
        prompt = self._prompt(lambda: self.branch.assemble(budget=self.budget))
        if prompt is None:
            return
        self.faults["prompts"] += 1
        self.faults.update(check_prompt(prompt, self._said(prompt.head)))
        again = self._prompt(lambda: self.branch.assemble(budget=self.budget))
        self.faults["other_bytes"] += again is None or again.token_ids != prompt.token_ids

    def _said(self, head: int) -> Said:
        return Said(
            messages=self.branch.messages(1, head),
            pins=self.branch.pins(),
            counter=_COUNTER,
            budget=self.budget,
        )

    def _prompt(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except ContextOverflowError as error:
            self.faults["errors"] += 1
            tiers = error.tokens_by_tier
            fixed = sum(tiers.get(tier, 0) for tier in ("pinned", "template", "current"))
            self.faults["wrong_errors"] += fixed <= self.budget.prompt
        except InvalidInputError:
            if not self._is_empty():
                raise
            self.faults["nothing_asked"] += 1
        except AgentMemError:
            self.faults["wrong_errors"] += 1
        return None

    def _is_empty(self) -> bool:
        """Whether no question or result is left on this branch: all of them were deleted."""
        own = self.branch.messages(self.branch.branch.forked_at + 1)
        asked = (one for one in own if one.message.role in (Role.USER, Role.TOOL))
        return all(one.origin is Origin.DELETED for one in asked)


def run_memory_session(seed: int) -> tuple[str, Counter[str]]:
    """Play one random session; return the name of its group and its faults."""
    rng = random.Random(seed)
    window = rng.choice((80, 80, 128, 128, 256, 256, 512, 1024, 4096))
    budget = Budget(
        context=window + 8,
        reply=8,
        low_water=rng.choice((0.0, 0.3, 0.5, 0.8, 1.0)),
        summary=rng.choice((0, 0.15, 0.4)),
        retrieved=rng.choice((0, 0.1, 0.3)),
    )
    recalls = rng.random() < 0.5
    policy = rng.choice(_POLICIES)
    memory = _memory(seed // 200, policy, recalls=recalls)
    talk = Talk(rng, window, reused_ids=rng.choice((0.0, 0.0, 0.1)))
    faults: Counter[str] = Counter()
    for key in ("first", "second") if policy.recall_sessions else ("first",):
        session = memory.session(key, user=f"u{seed}")
        session.pin("role", f"p {talk.text('N', rng.randrange(1, max(2, window // 8)))}")
        player = Player(session, talk, budget, faults)
        player.play(rng.randrange(4, 24))
        player.check()
        faults["conservation_errors"] += sum(len(audit.problems) for audit in session.audit())
    return "memory", faults
