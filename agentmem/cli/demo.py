"""The main job, end to end: a travel agent on a real model over a database on disk."""

from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table

from agentmem.cli.loading import load_model
from agentmem.cli.script import Ask, Delegate, Restart, Script, travel
from agentmem.cli.tables import destinations, plain, reply_line, shorten
from agentmem.config import Budget, InferenceConfig, Sampling
from agentmem.errors import SessionNotFoundError
from agentmem.inference import KVUsage, LocalModel
from agentmem.memory import Conversation, Memory, Session
from agentmem.types import Pin, Reply, TruncationRecord

BUDGET = Budget(context=1536, reply=32)
"""Small enough that a conversation of some 7,000 tokens slides the window several times."""

SAMPLING = Sampling(max_tokens=24, temperature=0.4, top_p=0.9, seed=4417)
"""Seeded, so that each run says the same; greedy, so small a model soon repeats itself."""


@dataclass(slots=True)
class Play:
    """One run of the script, and what it has seen so far."""

    console: Console
    database: str
    model: LocalModel
    script: Script
    key: str
    replies: list[Reply] = field(default_factory=list)

    def run(self) -> None:
        self._tell(
            f"{self.model.name} plays a travel agent. It is a very small model: judge how each "
            "prompt is made and accounted for, not the advice."
        )
        memory = self._open()
        try:
            session = memory.session(self.key)
            for key, text in self.script.pins:
                session.pin(key, text)
            for step in self.script.steps:
                if isinstance(step, Restart):
                    before = session.assemble().prompt_hash
                    memory.close()
                    memory = self._open()
                    session = memory.find(self.key)
                    self._tell_restart(before, session)
                elif isinstance(step, Delegate):
                    self._delegate(session, step)
                else:
                    self._ask(session, step)
            self._sum_up(session)
        finally:
            memory.close()

    def _tell(self, line: str, *, style: str = "") -> None:
        self.console.print(plain(line), style=style, soft_wrap=True)

    def _open(self) -> Memory:
        return Memory.open(self.database, model=self.model, budget=BUDGET)

    def _tell_restart(self, before: str, session: Session) -> None:
        same = "the same bytes" if session.assemble().prompt_hash == before else "OTHER BYTES"
        self._tell(f"-- restart: the database was closed and opened again; the prompt is {same}")

    def _ask(self, conversation: Conversation, ask: Ask) -> None:
        number = len(self.replies) + 1
        self._tell(f"{number:>3} user: {shorten(ask.user)}", style="bold")
        if ask.calls:
            conversation.append("user", ask.user)
            conversation.append("assistant", tool_calls=ask.calls)
            for call, result in zip(ask.calls, ask.results, strict=True):
                conversation.append("tool", result, tool_call_id=call.id, name=call.name)
                self._tell(f"    tool {call.name}: {shorten(result)}")
            reply = conversation.reply(sampling=SAMPLING)
        else:
            reply = conversation.reply(ask.user, sampling=SAMPLING)
        self.replies.append(reply)
        self._tell(f"    agent: {shorten(reply.text)}")
        self._tell(f"    {reply_line(reply)}", style="dim")

    def _delegate(self, session: Session, step: Delegate) -> None:
        self._tell(f"-- subtask {step.name!r}, inherits {step.inherit}")
        with session.subtask(step.name, inherit=step.inherit) as task:
            for ask in step.steps:
                self._ask(task, ask)
            task.promote(step.promote)
            during = self.model.kv_usage()
        freed = during.cached - self.model.kv_usage().cached
        self._tell(f"-- handed back: {step.promote} ({freed} KV blocks of scratch are free again)")

    def _sum_up(self, session: Session) -> None:
        branches = [session.history(branch.id) for branch in session.branches()]
        records = [record for branch in branches for record in branch.truncations()]
        problems = [problem for branch in branches for problem in branch.check()]
        num_assemblies = sum(len(branch.assemblies()) for branch in branches)
        table = Table(title=f"session {self.key} in {self.database}", show_header=False)
        for name, value in self._totals(records):
            table.add_row(name, value)
        table.add_row(
            "each message shown or on record",
            f"in all {num_assemblies} logged prompts" if not problems else f"NO: {problems}",
        )
        last = self.replies[-1].prompt
        for pin in session.pins():
            table.add_row(f"pin {pin.key!r} in the last prompt", self._proof(pin, last.token_ids))
        table.add_row("KV blocks", kv_line(self.model.kv_usage()))
        self.console.print(table)

    def _totals(self, records: list[TruncationRecord]) -> list[tuple[str, str]]:
        usages = [reply.usage for reply in self.replies]
        prompt = sum(usage.prompt_tokens for usage in usages)
        reused = sum(usage.cached_tokens for usage in usages)
        return [
            ("replies", str(len(usages))),
            ("prompt tokens in all", f"{prompt:,}"),
            ("  computed", f"{prompt - reused:,}"),
            ("  reused from the KV cache", f"{reused:,} ({reused / prompt:.0%})"),
            ("truncation records, main and subtasks", f"{len(records)}: {destinations(records)}"),
        ]

    def _proof(self, pin: Pin, token_ids: tuple[int, ...]) -> str:
        """Look for the pin in what the model was really given: the ids, decoded."""
        text = self.model.counter.decode(token_ids)
        at = text.encode().find(pin.text.encode())
        size = len(pin.text.encode())
        return "MISSING" if at < 0 else f"byte for byte, bytes {at} to {at + size}"


def kv_line(usage: KVUsage) -> str:
    """Return the account of the KV pool."""
    return (
        f"{usage.free} free + {usage.cached} cached + {usage.in_use} in use = {usage.total} "
        f"of {usage.block_size} tokens"
    )


def run_demo(console: Console, database: str, name: str, config: InferenceConfig) -> list[Reply]:
    """
    Play the travel agent's conversation into *database*, and return its replies.

    Raises:
        AgentMemError: the database or the model cannot be opened.
    """
    script = travel()
    with Memory.open(database) as memory:
        key = _unused_key(memory, script.session)
    model = load_model(console, name, config)
    play = Play(console=console, database=database, model=model, script=script, key=key)
    try:
        play.run()
    finally:
        model.close()
    return play.replies


def _unused_key(memory: Memory, wanted: str) -> str:
    """Choose the key for this run: numbered if an earlier one is in the database."""
    key, number = wanted, 1
    while True:
        try:
            memory.find(key)
        except SessionNotFoundError:
            return key
        number += 1
        key = f"{wanted}-{number}"
