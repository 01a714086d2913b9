"""Loads from the store what the assembler is to see of a branch: never more than a window."""

from collections.abc import Sequence

from agentmem.config import Budget
from agentmem.context import BranchView, group_turns
from agentmem.memory.runtime import Runtime
from agentmem.protocols import TokenCounter
from agentmem.types import (
    AssemblyInfo,
    BranchId,
    BranchInfo,
    Inherit,
    Role,
    StoredMessage,
    Tier,
)

_PAGE = 64
"""Messages in one read when a window is built anew, from the end backwards."""


def load_view(
    runtime: Runtime, branch_id: BranchId, budget: Budget
) -> tuple[BranchView, AssemblyInfo | None]:
    """
    Read the end of a branch, and the last assembly of it that the same budget bounded.

    The window goes on from where that assembly left it. A subtask that inherits everything goes
    on from its parent's, so that it begins with the parent's own prefix.
    """
    store, scope = runtime.store, runtime.scope
    branch = store.sessions.branch(scope, branch_id)
    previous = _last_assembly(runtime, branch, budget)
    start = _window_start(previous)
    floor = _floor(runtime, branch)
    if start is None:
        messages = _read_backwards(runtime, branch, floor, budget)
    else:
        messages = store.messages.read(scope, branch_id, max(start, floor + 1), branch.head)
    if floor:
        kept = store.messages.promoted(scope, branch_id, first=start or 1, last=floor)
        messages = (*kept, *messages)
    own = previous if previous and previous.branch_id == branch_id else None
    view = BranchView(
        branch_id=branch_id,
        head=branch.head,
        pins=store.pins.visible(scope, branch_id),
        turns=group_turns(messages),
        window_start=start,
        recorded=tuple(span for span in own.layout if span.tier is None) if own else (),
        inherited=floor,
    )
    return view, own


def _last_assembly(runtime: Runtime, branch: BranchInfo, budget: Budget) -> AssemblyInfo | None:
    found = runtime.store.ledger.last(
        runtime.scope,
        branch.id,
        context=budget.context,
        reply=budget.reply,
        fingerprint=runtime.need_counter().fingerprint,
    )
    if found is None and branch.parent is not None and branch.inherit is Inherit.ALL:
        parent = runtime.store.sessions.branch(runtime.scope, branch.parent)
        found = _last_assembly(runtime, parent, budget)
        # A parent that has slid on since the fork no longer tells where this branch began.
        if found is not None and (_window_start(found) or 1) > branch.forked_at + 1:
            return None
    return found


def _window_start(assembly: AssemblyInfo | None) -> int | None:
    if assembly is None:
        return None
    shown = (s.first for s in assembly.layout if s.tier in (Tier.RECENT, Tier.CURRENT))
    return next(shown, assembly.head + 1)


def _floor(runtime: Runtime, branch: BranchInfo) -> int:
    """Find the last position that this branch does not see, though an ancestor has it."""
    if branch.parent is None:
        return 0
    if branch.inherit is Inherit.PINS:
        return branch.forked_at
    parent = runtime.store.sessions.branch(runtime.scope, branch.parent)
    return min(branch.forked_at, _floor(runtime, parent))


def _read_backwards(
    runtime: Runtime, branch: BranchInfo, floor: int, budget: Budget
) -> tuple[StoredMessage, ...]:
    """Read pages until whole turns overfill the budget, or there is nothing more to read."""
    counter = runtime.need_counter()
    messages: tuple[StoredMessage, ...] = ()
    last = branch.head
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
    """Leave out the end of a turn whose beginning was not read."""
    roles = (stored.message.role for stored in messages)
    start = next((i for i, role in enumerate(roles) if role is Role.USER), len(messages))
    return messages[start:]


def _num_tokens(counter: TokenCounter, messages: Sequence[StoredMessage]) -> int:
    return sum(counter.count(stored.message) for stored in messages)
