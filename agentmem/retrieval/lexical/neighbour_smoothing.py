"""Neighbour-smoothed term frequencies: a message counts the words of those next to it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from agentmem.retrieval.rows.growable_array import Float64s, GrowableArray, Int64s
from agentmem.retrieval.rows.message_table import IndexedMessage
from agentmem.types.moments import PAUSE_S

_NONE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """
    Weights of the words of neighbours.

    Args:
        earlier: weight of the row one step before, raised to the number of steps.
        later: the same for rows after it.
        reach: number of steps in each direction.
        within: weight of the words of the rest of a message for one of its passages.
        max_lent: maximum words that a row contributes, scaled down in proportion; None for no
            limit. Else a reply of a thousand words would dominate its neighbours.
    """

    earlier: float
    later: float
    reach: int
    within: float
    max_lent: float | None = None

    @property
    def before(self) -> tuple[float, ...]:
        """Weights of the rows 1, 2, ... steps before a row."""
        return tuple(self.earlier**distance for distance in range(1, self.reach + 1))

    @property
    def after(self) -> tuple[float, ...]:
        """Weights of the rows 1, 2, ... steps after a row."""
        return tuple(self.later**distance for distance in range(1, self.reach + 1))

    def lent(self, lengths: Float64s) -> Float64s:
        """Return the number of words that rows of *lengths* contribute: (rows,)."""
        return lengths if self.max_lent is None else np.minimum(lengths, self.max_lent)


NEAR = Smoothing(earlier=0.7, later=0.5, reach=5, within=0.3)
"""For conversations of named speakers."""

DAMPED = Smoothing(earlier=0.7, later=0.5, reach=5, within=0.3, max_lent=40)
"""For logs of a user and an assistant, and a question about earlier messages."""

WIDE = Smoothing(earlier=0.8, later=0.8, reach=8, within=0.5, max_lent=60)
"""For logs of a user and an assistant, and an ordinary next turn."""

SMOOTHINGS = (NEAR, DAMPED, WIDE)

_REACH = max(smoothing.reach for smoothing in SMOOTHINGS)


class Neighbours:
    """
    The rows of each sitting as a linked list: the messages of a branch without a pause of an hour.

    Inside, rows are counted from 1: 0 is the null row, whose links point to itself.
    """

    def __init__(self) -> None:
        self._before = GrowableArray(np.int64)
        self._after = GrowableArray(np.int64)
        self._created = GrowableArray(np.float64)
        self._branches = GrowableArray(np.int64)
        self._last: dict[int, int] = {}
        for column in (self._before, self._after, self._created, self._branches):
            column.append(0)

    def add(self, entry: IndexedMessage) -> None:
        """Append the next row."""
        row = len(self._before)
        self._created.append(entry.created_at.timestamp())
        self._branches.append(entry.branch_id)
        self._before.append(_NONE)
        self._after.append(_NONE)
        self._join(self._last.get(entry.branch_id, _NONE), row)
        self._last[entry.branch_id] = row

    def remove(self, rows: Sequence[int]) -> None:
        """Unlink *rows*: the rows around one become neighbours, if the pause was short."""
        before, after = self._before.values, self._after.values
        for row in (one + 1 for one in rows):
            earlier, later = int(before[row]), int(after[row])
            branch = int(self._branches.values[row])
            if self._last.get(branch) == row:
                # Any later row is separated from the previous sitting by a pause.
                self._last[branch] = earlier
            before[row] = after[row] = after[earlier] = before[later] = _NONE
            self._join(earlier, later)

    def smoothing_links(
        self, rows: Int64s, smoothing: Smoothing
    ) -> Iterator[tuple[Int64s, Int64s, float]]:
        """
        Yield the rows into which *rows*, all different, are smoothed, with the weight.

        Each result has indices into *rows*, the rows that they contribute to, which are all
        different too, and the weight.
        """
        sides = (self._after.values, smoothing.before), (self._before.values, smoothing.after)
        for links, weights in sides:
            which = np.arange(len(rows))
            at = rows + 1
            for weight in weights:
                at = links[at]
                is_there = at != _NONE
                which, at = which[is_there], at[is_there]
                yield which, at - 1, weight

    def before(self, row: int) -> list[int]:
        """Return the rows before *row* in its sitting, nearest first, within the reach."""
        return self._follow(self._before.values, row)

    def around(self, rows: Sequence[int]) -> set[int]:
        """Return *rows* and all rows that they are smoothed into."""
        found = set(rows)
        for row in rows:
            found.update(self._follow(self._before.values, row))
            found.update(self._follow(self._after.values, row))
        return found

    def smoothed(self, row: int, lengths: Float64s, smoothing: Smoothing) -> float:
        """Return the length of *row* smoothed with those of its neighbours."""
        behind = zip(self._follow(self._before.values, row), smoothing.before, strict=False)
        ahead = zip(self._follow(self._after.values, row), smoothing.after, strict=False)
        near = list(chain(behind, ahead))
        lent = smoothing.lent(lengths[[at for at, _ in near]])
        return float(lengths[row] + sum(w * one for (_, w), one in zip(near, lent, strict=True)))

    def _follow(self, links: Int64s, row: int) -> list[int]:
        found: list[int] = []
        at = int(links[row + 1])
        while at != _NONE and len(found) < _REACH:
            found.append(at - 1)
            at = int(links[at])
        return found

    def _join(self, earlier: int, later: int) -> None:
        if _NONE in (earlier, later):
            return
        created = self._created.values
        if abs(created[later] - created[earlier]) <= PAUSE_S:
            self._after.values[earlier] = later
            self._before.values[later] = earlier
