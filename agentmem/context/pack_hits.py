"""
Select the best hits that fit, deduplicated, and counting each once.

The size of a line is derived from the count of its message, which is cached if it was ever in a
window, so that few lines are rendered with the template. The selection is then counted as a whole;
the weakest are dropped until it fits, and the remaining room is filled.
"""

import math
from bisect import bisect, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from agentmem.context.clip_text import MAX_CHARS_PER_TOKEN
from agentmem.context.recall import (
    HEADING,
    PAUSE,
    header_of,
    one_per_message,
    recall_message,
    source_of,
    speaker_of,
    written,
    year_of,
)
from agentmem.context.render import Renderer
from agentmem.protocols import Hit
from agentmem.types import BranchId, Message, MessageId, Role, TextPart
from agentmem.types.lines import line_of
from agentmem.types.passages import TextRange
from agentmem.types.sentences import OMITTED

_LEAST: Final = 2
"""Minimum tokens of a line: one for the speaker, and one of text."""

_ENOUGH: Final = 8
"""Minimum lines for an estimate of characters per token."""

_PATIENCE: Final = 32
"""Consecutive candidates that do not fit after which the selection stops."""

_WORTH_IT: Final = 32
"""Minimum free share of the room for which skipped candidates are reconsidered."""


def distinct(hits: Iterable[Hit], line: Callable[[Message], str] = line_of) -> list[Hit]:
    """
    Return *hits* deduplicated by *line* and passages, in order: the newest message of each.

    It has the rank and the score of the best one, and the number of duplicates.
    """
    keyed = [(line(hit.stored.message), hit) for hit in hits]
    copies: dict[str, list[Hit]] = {}
    for key, hit in keyed:
        copies.setdefault(key, []).append(hit)
    newest = {key: _newest(same) for key, same in copies.items()}
    found: dict[tuple[str, tuple[TextRange, ...]], Hit] = {}
    for key, hit in keyed:
        passages = _passages_in(newest[key], hit)
        best = found.get((key, passages))
        if best is None or hit.score > best.score:
            found[key, passages] = replace(
                newest[key], score=hit.score, ranks=hit.ranks, passages=passages
            )
    return list(found.values())


def _newest(same: Sequence[Hit]) -> Hit:
    """Return the newest of some copies, with their number."""
    if len(same) == 1:
        return same[0]
    # A retriever may have deduplicated some already.
    ids: dict[MessageId, int] = {}
    for hit in same:
        ids[hit.stored.id] = max(hit.times, ids.get(hit.stored.id, 0))
    newest = max(same, key=lambda hit: (hit.stored.created_at, hit.stored.id))
    return replace(newest, times=max(*ids.values(), len(ids)))


def _passages_in(newest: Hit, copy: Hit) -> tuple[TextRange, ...]:
    """Return the passages of *copy* in the newest one: none if its white space or case differs."""
    is_same = newest.stored.message.memory_text == copy.stored.message.memory_text
    return copy.passages if is_same else ()


def pack(hits: Iterable[Hit], room: int, renderer: Renderer) -> tuple[Hit, ...]:
    """
    Select from *hits*, best first, those that fit into *room* tokens, skipping those that do not.

    Rendered as one message they take at most *room*. The passages of a message are one hit.
    """
    page = _Page(renderer, room)
    passed = page.fill(hits)
    kept = page.kept()
    # Lines may take fewer tokens together than separately.
    if passed and page.has_more_room() and page.fill(passed) != passed:
        kept = page.kept()
    return one_per_message(kept)


class _Page:
    """A selection in progress, with the remaining tokens."""

    def __init__(self, renderer: Renderer, room: int) -> None:
        self._renderer = renderer
        self._all_room = room
        self._hits: list[Hit] = []
        self._shown: set[MessageId] = set()
        self._costs: list[int] = []
        self._times: dict[BranchId | None, list[datetime]] = {}
        self._years: set[int] = set()
        one, two = renderer.count_text("a"), renderer.count_text("a\na")
        # Tokens of a message besides its lines, line ends included.
        self._frame = 2 * one - two
        # Tokens of an additional line of one word.
        self._more = two - one
        self._ones: dict[Role, int] = {}
        self._labels: dict[str, int] = {}
        self._chars_per_token = 0.0
        self._size = 0
        self.room = room - renderer.count_text(HEADING)

    def fill(self, hits: Iterable[Hit]) -> list[Hit]:
        """Add the *hits* that fit; return the considered others."""
        passed: list[Hit] = []
        in_a_row = 0
        for hit in hits:
            if self.room < _LEAST or in_a_row == _PATIENCE:
                break
            if self._add(hit):
                in_a_row = 0
            else:
                passed.append(hit)
                in_a_row += 1
        return passed

    def kept(self) -> tuple[Hit, ...]:
        """Return the hits that fit when counted as a whole, best first."""
        hits, costs = self._hits, self._costs
        self._size = self._whole(hits)
        while hits and (excess := self._size - self._all_room) > 0:
            while hits and excess > 0:
                hits.pop()
                excess -= max(1, costs.pop())
            self._size = self._whole(hits)
        return tuple(hits)

    def has_more_room(self) -> bool:
        """Set the room to the rest after the kept ones; return whether a line may fit now."""
        before, self.room = self.room, self._all_room - self._size
        return self.room > max(before, self._all_room // _WORTH_IT)

    def _add(self, hit: Hit) -> bool:
        """Add *hit* if its line fits, with the header that it may need."""
        if not self._may_fit(len(hit.text)):
            return False
        cost = self._line(hit)
        if cost <= self.room:
            cost += self._header(hit)
        if cost > self.room:
            return False
        self.room -= cost
        self._hits.append(hit)
        self._shown.add(hit.stored.id)
        self._costs.append(cost)
        insort(self._times.setdefault(source_of(hit), []), hit.stored.created_at)
        self._years.add(year_of(hit.stored.created_at))
        return True

    def _may_fit(self, size: int) -> bool:
        """Whether a text of *size* characters may fit, as an estimate before counting."""
        longest = MAX_CHARS_PER_TOKEN
        if len(self._hits) >= _ENOUGH:
            longest = min(longest, math.ceil(2 * self._chars_per_token))
        return size <= self.room * longest

    def _line(self, hit: Hit) -> int:
        """Return the tokens of the line of *hit*: by its message if that has the same text."""
        message = hit.stored.message
        text = hit.text
        is_plain = message.role in (Role.USER, Role.ASSISTANT) and not message.tool_calls
        if hit.passages and hit.stored.id in self._shown:
            # Its line is there; the mark of a gap is about a word more.
            tokens = said = self._count(f"{OMITTED} {text}")
        elif (
            is_plain
            and hit.superseded_by is None
            and hit.times == 1
            and text == message.text
            and len(text.splitlines()) == 1
        ):
            said = self._renderer.count(message) - self._one_of(message.role) + self._more
            tokens = max(0, said + self._label(speaker_of(hit.stored)))
        else:
            tokens = said = self._count(written(hit))
        self._chars_per_token = max(self._chars_per_token, len(text) / max(said, 1))
        return tokens

    def _one_of(self, role: Role) -> int:
        """Return the tokens of a message of *role* with one word."""
        if role not in self._ones:
            message = Message(role=role, parts=(TextPart(text="a"),))
            self._ones[role] = self._renderer.count(message)
        return self._ones[role]

    def _label(self, speaker: str) -> int:
        """Return the tokens of the prefix with *speaker*."""
        if speaker not in self._labels:
            longer = self._renderer.count_text(f"{speaker}: a")
            self._labels[speaker] = longer - self._one_of(Role.USER)
        return self._labels[speaker]

    def _header(self, hit: Hit) -> int:
        """Return the tokens of the header that *hit* needs; 0 next to one of the same sitting."""
        at, source = hit.stored.created_at, source_of(hit)
        times = self._times.get(source, [])
        place = bisect(times, at)
        if any(abs(time - at) <= PAUSE for time in times[max(0, place - 1) : place + 1]):
            return 0
        return self._count(header_of(at, source, with_year=year_of(at) not in self._years))

    def _count(self, line: str) -> int:
        return max(0, self._renderer.count_text(line) - self._frame)

    def _whole(self, hits: Sequence[Hit]) -> int:
        return sum(
            self._renderer.count(message) for message in recall_message(one_per_message(hits))
        )
