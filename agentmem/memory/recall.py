"""Recall for a prompt: from a branch to a `Query`."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from agentmem.config import Budget
from agentmem.context import BranchView, distinct, pinned_message
from agentmem.errors import InvalidInputError
from agentmem.memory.session_clock import hits_in
from agentmem.memory.superseded import newest_first, superseded
from agentmem.memory.user_runtime import Runtime
from agentmem.protocols import Hit, Query, SearchIndex, SearchScope, first_messages
from agentmem.types import (
    BranchId,
    BranchInfo,
    Inherit,
    MessageId,
    Origin,
    Pin,
    Prompt,
    Role,
    StoredMessage,
    Tier,
)

Wanted = str | tuple[Hit, ...] | None
"""What to recall: matches of a text, given hits, or matches of the user's last message."""

_MAX_CHARS: Final = 2000
"""Maximum characters at each end of a query; embedders read about as many."""

_MAX_RETRIES: Final = 16
"""Number of messages after an interrupted answer in which its replacement is searched."""

_TOKENS_PER_HIT: Final = 8
"""Minimum tokens of a recalled message, heading and speaker included."""

_MIN_HITS: Final = 32
"""Minimum number of candidates: the best ones may be too long."""

_MAX_ROUNDS: Final = 12
"""Maximum doublings of the limit for a retriever that returns duplicates."""


def wanted_recall(runtime: Runtime, query: str | None, hits: Sequence[Hit] | None) -> Wanted:
    """
    Parse the recall options of a call.

    Raises:
        InvalidInputError: *query* is not a text, *hits* are given too, or are not hits.
        ConfigError: a *query* without a retriever.
    """
    if query is not None:
        runtime.need_search_index()
        if hits is not None:
            raise InvalidInputError("pass either query or hits, not both")
        return checked_query(query)
    if hits is None:
        return None
    found = tuple(hits) if isinstance(hits, Iterable) else (hits,)
    if not all(isinstance(hit, Hit) for hit in found):
        raise InvalidInputError(f"hits are a list of Hit, got {hits!r:.80}")
    return found


def checked_query(text: str) -> str:
    """
    Return *text* if it is a valid query.

    Raises:
        InvalidInputError: it is not a string, or blank.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidInputError(f"query must be a non-blank string, got {text!r:.80}")
    return text


def recall_for(
    runtime: Runtime, view: BranchView, budget: Budget, wanted: Wanted, *, is_whole: bool = False
) -> BranchView:
    """
    Return *view* with candidates to recall: far more than fit, best first.

    With *is_whole* there is no search, since the window is assumed to show everything.
    """
    if isinstance(wanted, tuple):
        return replace(view, hits=hits_in(runtime.zone, wanted))
    if runtime.search_index is None or budget.retrieved_tokens == 0 or is_whole:
        return view
    # Only the branch's messages can be kept in place.
    everywhere = runtime.policy.recall_sessions and not runtime.policy.keep_recalled
    loaded = [stored for turn in view.turns for stored in turn.messages]
    # The query is constant in a tool loop, so that the prefix is stable until the answer.
    text = wanted or _asked(view)
    if not text.strip():
        return view
    # Messages in the window are among the best and skipped. Whatever part of it slides out, this
    # many others are found, so that assembling again after the slide gives the same prompt.
    most = _MIN_HITS + budget.retrieved_tokens // _TOKENS_PER_HIT
    limit = len(loaded) + most
    hits = _find(
        runtime,
        view.branch_id,
        text,
        limit=limit,
        everywhere=everywhere,
        head=view.head,
        is_turn=wanted is None,
    )
    hits = newest_first(runtime, view.branch_id, hits, view.superseded)
    return replace(view, hits=hits_in(runtime.zone, hits), max_hits=most)


def is_whole(runtime: Runtime, view: BranchView, budget: Budget) -> bool:
    """Whether the window of *view* probably shows all searchable messages."""
    if runtime.search_index is None or (
        runtime.policy.recall_sessions and not runtime.policy.keep_recalled
    ):
        return False
    loaded = [stored for turn in view.turns for stored in turn.messages]
    return len(loaded) == view.head and _fits(runtime, view.pins, loaded, budget)


def search(
    runtime: Runtime, branch_id: BranchId, text: str, *, limit: int, everywhere: bool
) -> tuple[Hit, ...]:
    """
    Search the messages visible to a branch for *text*, best first, each with its best passage.

    A message that replaced another is before it, and that is marked.

    Raises:
        ConfigError: there is no retriever.
        SessionNotFoundError: the branch does not exist in this scope.
    """
    hits = _find(
        runtime, branch_id, text, limit=limit, everywhere=everywhere, head=None, is_turn=False
    )
    best: dict[MessageId, Hit] = {}
    for hit in hits:
        best.setdefault(hit.stored.id, hit)
    newest = superseded(runtime.store.replacements.visible(runtime.scope, branch_id))
    return newest_first(runtime, branch_id, tuple(best.values()), newest)[:limit]


def leaves_out(prompt: Prompt) -> bool:
    """Whether messages of the branch are not shown at their position."""
    return any(span.tier in (None, Tier.SUMMARY) for span in prompt.layout)


def _find(  # noqa: PLR0913 - a search, and the moment that it is for
    runtime: Runtime,
    branch_id: BranchId,
    text: str,
    *,
    limit: int,
    everywhere: bool,
    head: int | None,
    is_turn: bool,
) -> tuple[Hit, ...]:
    """Search as of the newest message *head*; None for now."""
    recall = runtime.need_search_index()
    branch, visible = runtime.store.snapshot(
        lambda: _visible(runtime, branch_id, everywhere=everywhere)
    )
    if head is not None:
        # Messages appended after the snapshot must not be recalled yet.
        first, last = visible[branch.id]
        visible[branch.id] = (first, min(last, head))
    search_scope = SearchScope(
        scope=runtime.scope, session_id=None if everywhere else branch.session_id
    )
    query = Query(
        text=_cut(text),
        search_scope=search_scope,
        session_id=branch.session_id,
        visible=visible,
        limit=limit,
        zone=runtime.zone,
        is_turn=is_turn,
    )
    hits = _distinct(recall, query)
    if not any(hit.stored.origin is Origin.PARTIAL for hit in hits):
        return hits
    return tuple(hit for hit in hits if not _is_retried(runtime, hit.stored))


def _is_retried(runtime: Runtime, stored: StoredMessage) -> bool:
    """Whether *stored* is an interrupted answer that another one has replaced."""
    if stored.origin is not Origin.PARTIAL:
        return False
    first = stored.position + 1
    after = runtime.store.messages.read(
        runtime.scope, stored.branch_id, first, first + _MAX_RETRIES
    )
    for message in (one.message for one in after):
        if message.role is Role.USER:
            return False
        if message.role is Role.ASSISTANT:
            return True
    return False


def _distinct(recall: SearchIndex, query: Query) -> tuple[Hit, ...]:
    """
    Search for the number of distinct lines that *query* requests.

    A retriever may count duplicates separately; then the limit is raised.
    """
    lines: list[Hit] = []
    for round_ in range(_MAX_ROUNDS):
        asked = query.limit << round_
        found = recall.search(replace(query, limit=asked))
        lines = distinct(found)
        if _num_messages(lines) >= query.limit or _num_messages(found) < asked:
            break
    return first_messages(lines, query.limit)


def _num_messages(hits: Iterable[Hit]) -> int:
    """Count the messages of *hits*, which may have several passages each."""
    return len({hit.stored.id for hit in hits})


def _visible(
    runtime: Runtime, branch_id: BranchId, *, everywhere: bool
) -> tuple[BranchInfo, dict[BranchId, tuple[int, int]]]:
    """
    Return a branch, and the positions that it may recall, by the branch that stores them.

    Its own messages, and its ancestors' up to the forks, but not through a fork that inherits pins
    only. Never sibling branches. With *everywhere* also the current lines of the user's other
    sessions, where these are not their main ones.
    """
    line = runtime.store.sessions.lineage(runtime.scope, branch_id)
    visible = _of_line(line)
    if everywhere:
        others = runtime.store.sessions.later_lines(runtime.scope)
        for other in (one for one in others if one[0].session_id != line[0].session_id):
            visible.update(_of_line(other))
    return line[0], visible


def _of_line(line: Sequence[BranchInfo]) -> dict[BranchId, tuple[int, int]]:
    """Return the positions visible to the first of *line*, by the branch that stores them."""
    visible: dict[BranchId, tuple[int, int]] = {}
    limit = line[0].head
    for branch in line:
        visible[branch.id] = (branch.forked_at + 1, min(limit, branch.head))
        limit = min(limit, branch.forked_at)
        if branch.inherit is Inherit.PINS:
            break
    return visible


def _asked(view: BranchView) -> str:
    """Return the user's last message: the question of the current turn."""
    said = [stored for turn in view.turns[-1:] for stored in turn.messages]
    users = (one.message.text for one in reversed(said) if one.message.role is Role.USER)
    return next(users, "")


def _fits(
    runtime: Runtime, pins: Sequence[Pin], loaded: Sequence[StoredMessage], budget: Budget
) -> bool:
    """Whether all of *loaded* fits the window after *pins* even with maximum recall."""
    count = runtime.need_counter().count
    room = budget.prompt - budget.retrieved_tokens - sum(map(count, pinned_message(pins)))
    return sum(count(stored.message) for stored in loaded) <= room


def _cut(text: str) -> str:
    if len(text) <= 2 * _MAX_CHARS:
        return text
    return f"{text[:_MAX_CHARS]} {text[-_MAX_CHARS:]}"
