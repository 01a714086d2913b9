"""What is valid now: a message that replaced another is recalled before it, which is marked."""

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from agentmem.context import num_earlier, replaced_statements
from agentmem.errors import ConflictError
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Hit
from agentmem.types import (
    BranchId,
    Origin,
    Replacement,
    ReplacementAuthor,
    Role,
    StoredMessage,
)


def superseded(replacements: Iterable[Replacement]) -> dict[int, int]:
    """
    Return for each replaced message the newest one that replaced it, both by position.

    Chains of replacements are followed to their end; they only point forward.
    """
    later = {one.old: one.new for one in replacements}
    newest: dict[int, int] = {}
    for old in sorted(later, reverse=True):
        newest[old] = newest.get(later[old], later[old])
    return newest


def mark_replaced(runtime: Runtime, stored: StoredMessage) -> None:
    """Mark the earlier statements of the user that a new message of the user replaces."""
    if not runtime.policy.mark_replaced or not _is_statement(stored):
        return
    text = stored.message.memory_text
    number = num_earlier(text)
    if number == 0 or stored.position == 1:
        return
    store, scope, branch_id = runtime.store, runtime.scope, stored.branch_id
    first, last = max(1, stored.position - number), stored.position - 1
    gone = {one.old for one in store.replacements.visible(scope, branch_id)}
    earlier = [
        (one.position, one.message.memory_text)
        for one in store.messages.read(scope, branch_id, first, last)
        if _is_statement(one) and one.position not in gone
    ]
    for old in replaced_statements(text, earlier):
        # One that was deleted meanwhile needs no mark.
        with suppress(ConflictError):
            author = ReplacementAuthor.RULE
            store.replacements.add(scope, branch_id, old, stored.position, author=author)


def _is_statement(stored: StoredMessage) -> bool:
    return stored.message.role is Role.USER and stored.origin is Origin.SAID


def newest_first(
    runtime: Runtime, branch_id: BranchId, hits: Sequence[Hit], newest: Mapping[int, int]
) -> tuple[Hit, ...]:
    """
    Return *hits* with each replaced message marked, and its replacement before it.

    A replacement that was not found is added, with a score just above that of what it replaced.
    """
    if not any(hit.is_local and hit.stored.position in newest for hit in hits):
        return tuple(hits)
    by_position: dict[int, list[Hit]] = {}
    for hit in hits:
        if hit.is_local:
            by_position.setdefault(hit.stored.position, []).append(hit)
    found: list[Hit] = []
    done: set[int] = set()
    for hit in hits:
        position = hit.stored.position
        if not hit.is_local:
            found.append(hit)
            continue
        new = newest.get(position)
        if new is not None and new not in done:
            done.add(new)
            there = by_position.get(new) or _read(runtime, branch_id, new, hit.score)
            above = math.nextafter(hit.score, math.inf)
            found += [replace(one, score=max(one.score, above)) for one in there]
        if new is not None:
            found.append(replace(hit, superseded_by=new))
        elif position not in done:
            found.append(hit)
    return tuple(found)


def _read(runtime: Runtime, branch_id: BranchId, position: int, score: float) -> list[Hit]:
    stored = runtime.store.messages.read(runtime.scope, branch_id, position, position)
    return [Hit(stored=one, score=score) for one in stored if one.origin is not Origin.DELETED]
