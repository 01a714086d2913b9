"""
Which hits are recalled: the best that fit, each line once, counted once each.

What a line takes is told from the count of its message, which is known if the message was ever in
a window, so that few lines have to be written through the template. What was chosen so is counted
as a whole; the weakest leave until it fits, and what is left over is filled.
"""

import math
from bisect import bisect, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from agentmem.context.clip import MAX_CHARS_PER_TOKEN
from agentmem.context.recall import (
    HEADING,
    PAUSE,
    header_of,
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

_LEAST: Final = 2
"""Tokens that no line takes less than: one for who speaks, and one that is said."""

_ENOUGH: Final = 8
"""Lines from which the length of a token is known, if not exactly."""

_PATIENCE: Final = 32
"""Candidates that do not fit, one after the other, before the page is taken to be full."""

_WORTH_IT: Final = 32
"""The part of the room that has to be left over for what was passed over to be looked at again."""


def distinct(hits: Iterable[Hit], line: Callable[[Message], str] = line_of) -> list[Hit]:
    """
    Return each *line* of *hits* once, in their order: the newest message that says it.

    It has the place and the score of the best one, and how many there are.
    """
    lines: dict[str, list[Hit]] = {}
    for hit in hits:
        lines.setdefault(line(hit.stored.message), []).append(hit)
    return [_newest(same) for same in lines.values()]


def _newest(same: Sequence[Hit]) -> Hit:
    if len(same) == 1:
        return same[0]
    newest = max(same, key=lambda hit: (hit.stored.created_at, hit.stored.id))
    best = max(same, key=lambda hit: hit.score)
    # A retriever may have counted some of them itself.
    ids: dict[MessageId, int] = {}
    for hit in same:
        ids[hit.stored.id] = max(hit.times, ids.get(hit.stored.id, 0))
    times = max(*ids.values(), len(ids))
    return replace(newest, score=best.score, ranks=best.ranks, times=times)


def pack(hits: Iterable[Hit], room: int, renderer: Renderer) -> tuple[Hit, ...]:
    """
    Take of *hits*, best first, those that fit into *room* tokens, passing over what does not fit.

    Written as one message they take no more than *room*.
    """
    page = _Page(renderer, room)
    passed = page.fill(hits)
    kept = page.kept()
    # Lines may take fewer tokens together than by themselves.
    if passed and page.has_more_room() and page.fill(passed) != passed:
        kept = page.kept()
    return kept


class _Page:
    """What is being written, with the tokens that are left."""

    def __init__(self, renderer: Renderer, room: int) -> None:
        self._renderer = renderer
        self._all_room = room
        self._hits: list[Hit] = []
        self._costs: list[int] = []
        self._times: dict[BranchId | None, list[datetime]] = {}
        self._years: set[int] = set()
        one, two = renderer.count_text("a"), renderer.count_text("a\na")
        # What a message costs beside its lines, line ends included.
        self._frame = 2 * one - two
        # What one more line of one word costs.
        self._more = two - one
        self._ones: dict[Role, int] = {}
        self._labels: dict[str, int] = {}
        self._chars_per_token = 0.0
        self._size = 0
        self.room = room - renderer.count_text(HEADING)

    def fill(self, hits: Iterable[Hit]) -> list[Hit]:
        """Take up of *hits* what fits; return those of the others that were looked at."""
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
        """Return what fits when it is counted as a whole, best first."""
        hits, costs = self._hits, self._costs
        self._size = self._whole(hits)
        while hits and (excess := self._size - self._all_room) > 0:
            while hits and excess > 0:
                hits.pop()
                excess -= max(1, costs.pop())
            self._size = self._whole(hits)
        return tuple(hits)

    def has_more_room(self) -> bool:
        """Set the room to what is left behind what is kept; return whether a line may fit now."""
        before, self.room = self.room, self._all_room - self._size
        return self.room > max(before, self._all_room // _WORTH_IT)

    def _add(self, hit: Hit) -> bool:
        """Take up *hit* if there is room for its line, and for the header it may need."""
        if not self._may_fit(len(hit.stored.message.memory_text)):
            return False
        cost = self._line(hit)
        if cost <= self.room:
            cost += self._header(hit)
        if cost > self.room:
            return False
        self.room -= cost
        self._hits.append(hit)
        self._costs.append(cost)
        insort(self._times.setdefault(source_of(hit), []), hit.stored.created_at)
        self._years.add(year_of(hit.stored.created_at))
        return True

    def _may_fit(self, size: int) -> bool:
        """Whether a text of *size* characters might fit, before it is counted."""
        longest = MAX_CHARS_PER_TOKEN
        if len(self._hits) >= _ENOUGH:
            longest = min(longest, math.ceil(2 * self._chars_per_token))
        return size <= self.room * longest

    def _line(self, hit: Hit) -> int:
        """Count the line of *hit*: by its message where that says the same."""
        message = hit.stored.message
        text = message.memory_text
        is_plain = message.role in (Role.USER, Role.ASSISTANT) and not message.tool_calls
        if is_plain and hit.times == 1 and text == message.text and len(text.splitlines()) == 1:
            said = self._renderer.count(message) - self._one_of(message.role) + self._more
            tokens = max(0, said + self._label(speaker_of(hit.stored)))
        else:
            tokens = said = self._count(written(hit))
        self._chars_per_token = max(self._chars_per_token, len(text) / max(said, 1))
        return tokens

    def _one_of(self, role: Role) -> int:
        """Count a message of *role* that says one word."""
        if role not in self._ones:
            message = Message(role=role, parts=(TextPart(text="a"),))
            self._ones[role] = self._renderer.count(message)
        return self._ones[role]

    def _label(self, speaker: str) -> int:
        """Count what names *speaker* before a text."""
        if speaker not in self._labels:
            longer = self._renderer.count_text(f"{speaker}: a")
            self._labels[speaker] = longer - self._one_of(Role.USER)
        return self._labels[speaker]

    def _header(self, hit: Hit) -> int:
        """Count the header that *hit* needs; none beside one of the same sitting."""
        at, source = hit.stored.created_at, source_of(hit)
        times = self._times.get(source, [])
        place = bisect(times, at)
        if any(abs(time - at) <= PAUSE for time in times[max(0, place - 1) : place + 1]):
            return 0
        return self._count(header_of(at, source, with_year=year_of(at) not in self._years))

    def _count(self, line: str) -> int:
        return max(0, self._renderer.count_text(line) - self._frame)

    def _whole(self, hits: Sequence[Hit]) -> int:
        return sum(self._renderer.count(message) for message in recall_message(hits))
