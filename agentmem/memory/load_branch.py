"""Loads the assembler's input of a branch from the store: at most a window of messages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentmem.config import Budget
from agentmem.context import (
    MAX_LEFT,
    Assembler,
    BranchView,
    PreviousPrompt,
    RecalledGroup,
    group_turns,
    summarize_all,
)
from agentmem.memory.session_clock import seen_from
from agentmem.memory.superseded import superseded
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Hit, TokenCounter
from agentmem.store.prompt_log.summaries import Sources
from agentmem.types import (
    AssemblyInfo,
    BranchId,
    BranchInfo,
    Inherit,
    Pin,
    PrefixBreak,
    Prompt,
    Role,
    Span,
    StoredMessage,
    Summary,
    Tier,
)

_PAGE = 64
"""Page size for rebuilding a window, from the end backwards."""


def load_view(
    runtime: Runtime, branch_id: BranchId, budget: Budget, head: int | None = None
) -> tuple[BranchView, AssemblyInfo | None]:
    """
    Load the end of a branch, and its last prompt of the same budget.

    The window continues from that prompt. A subtask that inherits everything continues from its
    parent's, to share the parent's prefix. With *head* the branch is loaded as of that newest
    message.
    """
    found = runtime.store.snapshot(lambda: _look(runtime, branch_id, budget, head))
    branch, previous, messages = found.branch, found.previous, found.messages
    if previous is None:
        # It counts tokens, so it runs outside of a transaction.
        messages = _read_backwards(runtime, branch, found.floor, found.head, budget)
    own = previous if previous and previous.branch_id == branch.id else None
    view = BranchView(
        branch_id=branch.id,
        head=found.head,
        pins=found.pins,
        turns=group_turns((*found.promoted, *messages)),
        before=None if previous is None else _before(previous),
        window_reset_reason=found.window_reset_reason,
        recorded=own.layout if own is not None else (),
        summaries=found.summaries,
        inherited=found.floor,
        groups=found.groups,
        left=found.left,
        superseded=found.superseded,
    )
    view = seen_from(runtime.zone, view)
    if own is None and branch.inherit is Inherit.SUMMARY and branch.parent is not None:
        summaries, parent = _of_parent(runtime, branch, budget)
        view = replace(view, summaries=summaries, parent=parent)
    return view, own


def sources_of(view: BranchView) -> Sources:
    """Return the possible inputs of new summaries for *view*."""
    messages = view.messages
    superseded = set(view.superseded)
    while view.parent is not None:
        view = view.parent
        messages += view.messages
        superseded |= view.superseded.keys()
    return Sources(messages=messages, summaries=view.summaries, superseded=superseded)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The result of one read of the store; without *messages* for a new window."""

    branch: BranchInfo
    head: int
    floor: int
    previous: AssemblyInfo | None
    window_reset_reason: PrefixBreak
    messages: tuple[StoredMessage, ...]
    promoted: tuple[StoredMessage, ...]
    pins: tuple[Pin, ...]
    summaries: tuple[Summary, ...]
    groups: tuple[RecalledGroup, ...]
    left: tuple[StoredMessage, ...]
    superseded: Mapping[int, int]


def _look(runtime: Runtime, branch_id: BranchId, budget: Budget, head: int | None) -> _Found:
    store, scope = runtime.store, runtime.scope
    line = store.sessions.lineage(scope, branch_id)
    branch = line[0]
    head = branch.head if head is None else head
    previous = _last_assembly(runtime, line, head, budget)
    floor = _floor(line)
    start = 1 if previous is None else _window_start(previous)
    messages: tuple[StoredMessage, ...] = ()
    if previous is not None:
        messages = store.messages.read(scope, branch.id, max(start, floor + 1), head)
    promoted: tuple[StoredMessage, ...] = ()
    if floor:
        promoted = store.messages.promoted(scope, branch.id, first=start, last=floor)
    return _Found(
        branch=branch,
        head=head,
        floor=floor,
        previous=previous,
        window_reset_reason=PrefixBreak.FIRST
        if previous is not None
        else _window_reset_reason(runtime, branch),
        messages=messages,
        promoted=promoted,
        pins=store.pins.visible(scope, branch.id),
        summaries=_summaries(runtime, branch, previous),
        groups=_groups(runtime, branch, previous),
        left=_left(runtime, branch, previous, floor=floor),
        superseded=superseded(store.replacements.visible(scope, branch.id, last=head)),
    )


def _left(
    runtime: Runtime, branch: BranchInfo, previous: AssemblyInfo | None, *, floor: int
) -> tuple[StoredMessage, ...]:
    """Load the last messages that left the window without a summary, for a later one."""
    if previous is None or runtime.policy.summarizer is None:
        return ()
    found: tuple[StoredMessage, ...] = ()
    start = _window_start(previous)
    for span in reversed(previous.layout):
        room = MAX_LEFT - len(found)
        first, last = max(span.first, floor + 1), min(span.last, start - 1)
        first = max(first, last - room + 1)
        if span.tier is None and first <= last and room:
            found = (*runtime.store.messages.read(runtime.scope, branch.id, first, last), *found)
    return found


def _before(previous: AssemblyInfo) -> PreviousPrompt:
    return PreviousPrompt(
        layout=previous.layout,
        pins=previous.pins,
        had_recalled=previous.tokens_by_tier.get(Tier.RETRIEVED, 0) > 0,
    )


def _last_assembly(
    runtime: Runtime, line: Sequence[BranchInfo], head: int, budget: Budget
) -> AssemblyInfo | None:
    for branch in line:
        found = runtime.store.prompt_log.last(
            runtime.scope,
            branch.id,
            context=budget.context,
            reply=budget.reply,
            fingerprint=runtime.need_counter().fingerprint,
            up_to=head,
        )
        if found is not None or branch.inherit is not Inherit.ALL:
            return found
        # The parent's state at the fork, not its current one.
        head = min(head, branch.forked_at)
    return None


def _window_reset_reason(runtime: Runtime, branch: BranchInfo) -> PrefixBreak:
    newest = runtime.store.prompt_log.newest(runtime.scope, branch.id)
    if newest is None:
        return PrefixBreak.FIRST if branch.parent is None else PrefixBreak.BRANCH
    is_same = newest.fingerprint == runtime.need_counter().fingerprint
    return PrefixBreak.BUDGET if is_same else PrefixBreak.TEMPLATE


def _window_start(assembly: AssemblyInfo) -> int:
    shown = (s.first for s in assembly.layout if s.tier in (Tier.RECENT, Tier.CURRENT))
    return next(shown, assembly.head + 1)


def _floor(line: Sequence[BranchInfo]) -> int:
    """Return the last position of an ancestor that is not in the branch's view."""
    floor = line[0].head
    for branch in line:
        floor = min(floor, branch.forked_at)
        if branch.inherit is not Inherit.ALL:
            break
    return floor


def _summaries(
    runtime: Runtime, branch: BranchInfo, previous: AssemblyInfo | None
) -> tuple[Summary, ...]:
    layout = previous.layout if previous is not None else ()
    keys = dict.fromkeys(span.source for span in layout if span.source is not None)
    if not keys:
        return ()
    return runtime.store.prompt_log.summaries(runtime.scope, branch.id, list(keys))


def _groups(
    runtime: Runtime, branch: BranchInfo, previous: AssemblyInfo | None
) -> tuple[RecalledGroup, ...]:
    """Load the recalled messages that earlier prompts kept in place, if the policy still does."""
    if previous is None or not runtime.policy.keep_recalled:
        return ()
    hits: dict[int, list[Hit]] = {}
    for span in previous.layout:
        if span.anchor is not None:
            found = runtime.store.messages.read(runtime.scope, branch.id, span.first, span.last)
            again = (_hit(one, span) for one in found)
            hits.setdefault(span.anchor, []).extend(again)
    return tuple(RecalledGroup(anchor=anchor, hits=tuple(hits[anchor])) for anchor in sorted(hits))


def _hit(stored: StoredMessage, span: Span) -> Hit:
    """Return the hit that *span* is of; of a message deleted since then there are no passages."""
    size = len(stored.message.memory_text)
    is_there = all(0 <= start < end <= size for start, end in span.passages)
    passages = span.passages if is_there else ()
    return Hit(
        stored=stored,
        score=0.0,
        times=span.times,
        passages=passages,
        superseded_by=span.superseded_by,
    )


def _of_parent(
    runtime: Runtime, branch: BranchInfo, budget: Budget
) -> tuple[tuple[Summary, ...], BranchView]:
    """Summarize the parent's prompt at the fork; return the summary and its inputs."""
    assert branch.parent is not None, "main has no parent"
    view, _ = load_view(runtime, branch.parent, budget, branch.forked_at)
    assembler = Assembler(runtime.need_counter(), budget, runtime.policy)
    return tuple(summarize_all(assembler, branch.id, view)), view


def _read_backwards(
    runtime: Runtime, branch: BranchInfo, floor: int, head: int, budget: Budget
) -> tuple[StoredMessage, ...]:
    """Load pages until whole turns exceed the budget, or all messages are loaded."""
    counter = runtime.need_counter()
    messages: tuple[StoredMessage, ...] = ()
    last = head
    while last > floor:
        first = max(floor + 1, last - _PAGE + 1)
        page = runtime.store.messages.read(runtime.scope, branch.id, first, last)
        messages = (*page, *messages)
        last = first - 1
        whole = _from_first_user(messages)
        if last > floor and _num_tokens(counter, whole) > budget.prompt:
            return whole
    return messages


def _from_first_user(messages: tuple[StoredMessage, ...]) -> tuple[StoredMessage, ...]:
    """Drop the rest of a turn whose beginning was not loaded."""
    roles = (stored.message.role for stored in messages)
    start = next((i for i, role in enumerate(roles) if role is Role.USER), len(messages))
    return messages[start:]


def _num_tokens(counter: TokenCounter, messages: Sequence[StoredMessage]) -> int:
    return sum(counter.count(stored.message) for stored in messages)


def is_same(prompt: Prompt, previous: AssemblyInfo) -> bool:
    """Return whether this prompt equals the last one in the log."""
    return (
        prompt.head == previous.head
        and prompt.layout == previous.layout
        and prompt.prompt_hash == previous.prompt_hash
    )
