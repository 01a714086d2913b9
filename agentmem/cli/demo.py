"""The demo: pins, truncations, recall and prefix reuse of a short conversation, with evidence."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.util import find_spec

from rich.console import Console
from rich.table import Table

from agentmem.cli import story
from agentmem.cli.story import Turn
from agentmem.cli.tables import plain, shorten
from agentmem.config import Budget, Sampling
from agentmem.errors import SessionNotFoundError
from agentmem.memory import Memory, Session, Subtask
from agentmem.protocols import LanguageModel, Retriever
from agentmem.types import (
    Message,
    Reply,
    Role,
    TextPart,
    Tier,
    ToolCall,
    TruncationReason,
    TruncationRecord,
)

_REPLY = 24
_WIDTH = 88

SAMPLING = Sampling(max_tokens=_REPLY)

_SHARE = 0.95
"""Size of the window as a share of the story's tokens, so that it is full before the end."""


@dataclass(slots=True)
class Play:
    """One run of the story, and its results so far."""

    console: Console
    database: str
    model: LanguageModel
    budget: Budget
    key: str
    replies: list[Reply] = field(default_factory=list)
    notes: list[tuple[str, str]] = field(default_factory=list)

    def run(self) -> None:
        memory = self._open()
        try:
            session = memory.session(self.key)
            for key, text in story.PINS:
                session.pin(key, text)
                self._say("pin", f"{key}: {text}")
            for turn in story.BEFORE:
                self._ask(session, turn)
            self._delegate(session)
            for turn in story.AFTER:
                self._ask(session, turn)
            before = session.assemble().prompt_hash
            memory.close()
            memory = self._open()
            session = memory.find(self.key)
            same = session.assemble().prompt_hash == before
            self._ask(session, story.LAST)
            self._sum_up(session, is_same=same)
        finally:
            memory.close()

    def _open(self) -> Memory:
        return Memory.open(
            self.database, model=self.model, retriever=_retriever(), budget=self.budget
        )

    def _say(self, who: str, text: str, aside: str = "", *, style: str = "") -> None:
        line = f"{who:>7}  {shorten(text, _WIDTH - len(aside)):<{_WIDTH - len(aside)}} {aside}"
        self.console.print(plain(line.rstrip()), style=style, soft_wrap=True)

    def _ask(self, talk: Session | Subtask, turn: Turn) -> Reply:
        if turn.call is None:
            self._say("user", turn.user, style="bold")
            reply = talk.reply(turn.user, sampling=SAMPLING)
        else:
            name, arguments = turn.call
            self._say("user", turn.user, f"-> {name}", style="bold")
            call = ToolCall(id=f"call-{len(self.replies)}", name=name, arguments=arguments)
            talk.append("user", turn.user)
            talk.append("assistant", tool_calls=[call])
            talk.append("tool", turn.result, tool_call_id=call.id, name=name)
            reply = talk.reply(sampling=SAMPLING)
        self.replies.append(reply)
        usage = reply.usage
        numbers = f"[{usage.prompt_tokens} tokens, {usage.cached_tokens} reused]"
        self._say("agent", reply.text or "(no answer)", numbers)
        left = _left_window(reply.prompt.truncations)
        if left:
            self._say("", f"{left} left the window", style="dim")
        return reply

    def _delegate(self, session: Session) -> None:
        with session.subtask("compare hotels", inherit="all") as task:
            replies = [self._ask(task, turn) for turn in story.SUBTASK]
            task.promote(story.PROMOTED)
        self._say("subtask", f"handed back: {story.PROMOTED}", style="bold")
        usage = replies[0].usage
        shared = (
            f"{usage.cached_tokens} of {usage.prompt_tokens} prompt tokens shared with its parent"
        )
        self.notes.append(("subtask", f"{shared}; 1 message came back"))

    def _sum_up(self, session: Session, *, is_same: bool) -> None:
        prompts = [reply.prompt for reply in self.replies]
        pins = [text for _, text in story.PINS]
        held = sum(all(pin in prompt.text for pin in pins) for prompt in prompts)
        logs = [session.history(branch.id) for branch in session.branches()]
        problems = [problem for log in logs for problem in log.check()]
        num_logged = sum(len(log.assemblies()) for log in logs)
        table = Table(show_header=False, title=f"session {self.key} in {self.database}")
        for name, value in (
            ("pinned", f"{len(pins)} pins, byte for byte in {held} of {len(prompts)} prompts"),
            ("left", _left(session)),
            ("recalled", _recalled(session, self.replies[-1])),
            ("reused", _reused(self.replies)),
            *self.notes,
            ("reopened", f"the prompt is {'the same bytes' if is_same else 'OTHER BYTES'}"),
            (
                "accounted",
                f"NO: {problems}"
                if problems
                else f"each message is shown or on record, in all {num_logged} logged prompts",
            ),
        ):
            table.add_row(name, plain(value))
        self.console.print(table)


def _left_window(records: Iterable[TruncationRecord]) -> str:
    """Describe the messages that left the window by *records*; empty if none did."""
    left = [
        record
        for record in records
        if record.reason is TruncationReason.WINDOW and record.tier is Tier.RECENT
    ]
    first = min((record.first for record in left), default=0)
    return f"messages {first} to {max(record.last for record in left)}" if left else ""


def _left(session: Session) -> str:
    left = _left_window(session.truncations())
    if not left:
        return "nothing: the window was never full"
    summary = "a summary covers them, and " if session.summaries() else ""
    return f"{left} left the window: {summary}the store has them in full"


def _recalled(session: Session, last: Reply) -> str:
    if _retriever() is None:
        return "nothing: recall needs numpy and PyStemmer (the extra `retrieval`)"
    for position in (hit.position for hit in last.prompt.recalled):
        if position is None:
            continue
        text = session.messages(position, position)[0].message.text
        if story.FACT in text:
            is_used = "in the answer" if story.FACT in last.text else "not in the answer"
            return f"message {position}, {shorten(text, 44)!r}; {story.FACT} is {is_used}"
    return f"{len(last.prompt.recalled)} messages, without the one that was asked for"


def _reused(replies: list[Reply]) -> str:
    prompt = sum(reply.usage.prompt_tokens for reply in replies)
    reused = sum(reply.usage.cached_tokens for reply in replies)
    return (
        f"{reused:,} of {prompt:,} prompt tokens ({reused / prompt:.0%}) came from the prefix cache"
    )


def _retriever() -> Retriever | None:
    """Return a lexical retriever, which loads no model; None where it is not installed."""
    if find_spec("numpy") is None or find_spec("Stemmer") is None:
        return None
    from agentmem.retrieval import HybridRetriever  # noqa: PLC0415 - an extra

    return HybridRetriever()


def run_demo(console: Console, database: str, model: LanguageModel, remark: str) -> list[Reply]:
    """
    Run the story in *database*, after a *remark* about the model, and return its replies.

    Raises:
        AgentMemError: the database cannot be opened, or the model fails.
    """
    with Memory.open(database) as memory:
        key = _unused_key(memory, "lisbon-trip")
    budget = _budget(model)
    console.print(plain(f"A travel agent with a window of {budget.context} tokens. {remark}"))
    play = Play(console=console, database=database, model=model, budget=budget, key=key)
    play.run()
    return play.replies


def _budget(model: LanguageModel) -> Budget:
    """Return a budget that the story exceeds, by this model's token counts."""
    said = [Message(role=Role.USER, parts=(TextPart(text=text),)) for text in story.texts()]
    whole = sum(model.counter.count(message) for message in said)
    return Budget(context=int(_SHARE * whole) + _REPLY, reply=_REPLY, summary=64, retrieved=64)


def _unused_key(memory: Memory, wanted: str) -> str:
    """Return an unused session key, numbered if *wanted* exists."""
    key, number = wanted, 1
    while True:
        try:
            memory.find(key)
        except SessionNotFoundError:
            return key
        number += 1
        key = f"{wanted}-{number}"
