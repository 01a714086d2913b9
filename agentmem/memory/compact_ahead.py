"""
Background compaction: summarize the messages that will leave the window ahead of time.

In two phases. The summary is written without locks, however long that takes. Then the branch is
read again, and if the same messages are still at the start of its window, the summary replaces
them: a compare-and-set on the log. Concurrent appends and assemblies are kept; after a conflict, or
the deletion of a message, it is retried.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agentmem.config import Budget
from agentmem.context import Assembler, Policy, author_of, checked_summary
from agentmem.errors import AgentMemError, ConflictError, SessionNotFoundError
from agentmem.memory.background_jobs import IsCancelled
from agentmem.memory.load_branch import load_view, sources_of
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Passage, Summarizer
from agentmem.types import BranchId, PrefixBreak, Prompt, Scope, Span, Tier, repair_text

_MAX_WRITES = 40
"""Maximum attempts to store a written summary."""


class SummaryError(AgentMemError):
    """A summarizer returned no valid summary."""


CompactionKey = tuple[Scope, BranchId, Budget]


def compaction_key(runtime: Runtime, branch_id: BranchId, budget: Budget) -> CompactionKey:
    """Return the key of a branch's window under a budget."""
    return (runtime.scope, branch_id, budget)


def look_ahead(runtime: Runtime, branch_id: BranchId, budget: Budget, prompt: Prompt) -> None:
    """Schedule a background compaction if the window of *prompt* is nearly full."""
    policy = runtime.policy
    if policy.compact_ahead is None or policy.summarizer is None:
        return
    key = compaction_key(runtime, branch_id, budget)
    if prompt.reuse.broken_by is PrefixBreak.COMPACTION:
        runtime.background.settle(key)
    if is_nearly_full(prompt, budget, policy.compact_ahead):
        runtime.background.ask(
            key, lambda is_cancelled: compact_ahead(runtime, branch_id, budget, is_cancelled)
        )


def is_nearly_full(prompt: Prompt, budget: Budget, mark: float) -> bool:
    """
    Return whether the window fills at least the share *mark* of its room.

    Its room is the prompt without pins, summaries and recalled messages. The mark is at least
    halfway from low water to full, or a compaction would follow each prompt.
    """
    window = sum(prompt.tokens_by_tier.get(tier, 0) for tier in (Tier.RECENT, Tier.CURRENT))
    room = budget.prompt - (prompt.num_tokens - window)
    return window >= max(mark, (1 + budget.low_water) / 2) * room


def compact_ahead(
    runtime: Runtime, branch_id: BranchId, budget: Budget, is_cancelled: IsCancelled
) -> None:
    """
    Summarize and drop the messages that a slide to low water would drop.

    It does nothing where the branch was compacted meanwhile, or deleted. Unlike in a reply there is
    no deadline, so a failed summary has no fallback.

    Raises:
        SummaryError: the summarizer raised, or its text was blank or too long; nothing was stored.
        ConflictError: all attempts lost to concurrent writers.
        ContextOverflowError: pins and current turn alone exceed the budget.
    """
    assert runtime.policy.summarizer is not None, "only what sums up is asked to"
    strict = _Strict(runtime.policy.summarizer, is_cancelled)
    policy: Policy = replace(runtime.policy, summarizer=strict)
    assembler = Assembler(runtime.need_counter(), budget, policy)
    leave_to: int | None = None
    for _ in range(_MAX_WRITES):
        try:
            view, previous = load_view(runtime, branch_id, budget)
        except SessionNotFoundError:
            return
        how = {"must_slide": True} if leave_to is None else {"leave_to": leave_to}
        prompt = assembler.assemble(replace(view, **how))
        strict.check()
        last = _last_hidden(prompt.layout)
        if is_cancelled() or previous is None or last <= _last_hidden(previous.layout):
            return
        leave_to = last if leave_to is None else leave_to
        try:
            runtime.store.prompt_log.record(
                runtime.scope, prompt, after=previous.id, sources=sources_of(view)
            )
        except SessionNotFoundError:
            return
        except ConflictError:
            continue
        return
    raise ConflictError(
        f"branch {branch_id} was assembled {_MAX_WRITES} times while it was compacted"
    )


def _last_hidden(layout: Sequence[Span]) -> int:
    """Return the last position that has left the window; 0 if none has."""
    hidden = (span.last for span in layout if span.tier in (None, Tier.SUMMARY))
    return max(hidden, default=0)


class _Strict:
    """A cache of a summarizer's texts by passages, which raises instead of falling back."""

    def __init__(self, summarizer: Summarizer, is_cancelled: IsCancelled) -> None:
        self._summarizer = summarizer
        self._is_cancelled = is_cancelled
        self._said: dict[tuple[tuple[Passage, ...], int], tuple[str, str]] = {}
        self._error: SummaryError | None = None
        self.author = author_of(summarizer)

    def summarize(
        self, passages: Sequence[Passage], *, max_tokens: int, count: Callable[[str], int]
    ) -> str:
        """Return the summarizer's text, cached by passages."""
        key = (tuple(passages), max_tokens)
        if key not in self._said:
            try:
                self._said[key] = self._ask(passages, max_tokens, count)
            except SummaryError as error:
                self._error = error
                raise
        text, self.author = self._said[key]
        return text

    def check(self) -> None:
        """
        Raise the summarizer's error, which the compactor ignores.

        Raises:
            SummaryError: there was one.
        """
        if self._error is not None:
            raise self._error

    def _ask(
        self, passages: Sequence[Passage], max_tokens: int, count: Callable[[str], int]
    ) -> tuple[str, str]:
        if self._is_cancelled():
            raise SummaryError("cancelled before it was written")
        try:
            text = repair_text(
                self._summarizer.summarize(passages, max_tokens=max_tokens, count=count)
            )
        except Exception as error:
            said = f"{author_of(self._summarizer)} raised {type(error).__name__}: {error}"
            raise SummaryError(said) from error
        author = author_of(self._summarizer)
        if not text.strip():
            raise SummaryError(f"{author} returned an empty summary")
        text, reason = checked_summary(text, passages)
        if reason is not None:
            raise SummaryError(f"{author} returned no summary: {reason}")
        if (size := count(text)) > max_tokens:
            raise SummaryError(
                f"{author} returned {size} tokens, more than max_tokens={max_tokens}"
            )
        return text, author
