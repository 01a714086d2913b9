"""
Which hits are recalled: the best that fit, counted once each.

The tokens of a line are taken to be the same wherever it stands; what was chosen so is counted as
a whole, and the weakest leave until it fits.
"""

from bisect import bisect, insort
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from agentmem.context.clip import MAX_CHARS_PER_TOKEN
from agentmem.context.recall import (
    HEADING,
    PAUSE,
    header_of,
    line_of,
    recall_message,
    source_of,
    year_of,
)
from agentmem.context.render import Renderer
from agentmem.protocols import Hit
from agentmem.types import BranchId

_LEAST: Final = 2
"""Tokens that no line takes less than: one for who speaks, and one that is said."""


def pack(hits: Iterable[Hit], room: int, renderer: Renderer) -> tuple[Hit, ...]:
    """
    Take of *hits*, best first, those that fit into *room* tokens, passing over what does not fit.

    Written as one message they take no more than *room*.
    """
    page = _Page(renderer, room)
    for hit in hits:
        if page.room < _LEAST:
            break
        page.add(hit)
    return page.kept()


class _Page:
    """What is being written, with the tokens that are left."""

    def __init__(self, renderer: Renderer, room: int) -> None:
        self._renderer = renderer
        self._all_room = room
        self._hits: list[Hit] = []
        self._costs: list[int] = []
        self._times: dict[BranchId | None, list[datetime]] = {}
        self._years: set[int] = set()
        # What a message costs beside its lines, line ends included.
        self._frame = 2 * renderer.count_text("a") - renderer.count_text("a\na")
        self.room = room - renderer.count_text(HEADING)

    def add(self, hit: Hit) -> None:
        """Take up *hit* if there is room for its line, and for the header it may need."""
        if len(hit.stored.message.text) > self.room * MAX_CHARS_PER_TOKEN:
            return
        cost = self._count(line_of(hit))
        if cost <= self.room:
            cost += self._header(hit)
        if cost > self.room:
            return
        self.room -= cost
        self._hits.append(hit)
        self._costs.append(cost)
        insort(self._times.setdefault(source_of(hit), []), hit.stored.created_at)
        self._years.add(year_of(hit.stored.created_at))

    def kept(self) -> tuple[Hit, ...]:
        """Give what fits when it is counted as a whole."""
        hits, costs = self._hits, self._costs
        while hits and (excess := self._whole(hits) - self._all_room) > 0:
            while hits and excess > 0:
                hits.pop()
                excess -= max(1, costs.pop())
        return tuple(hits)

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
