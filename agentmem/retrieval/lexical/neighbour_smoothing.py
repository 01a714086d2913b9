"""Neighbour-smoothed term frequencies: a message counts the words of those next to it."""

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from agentmem.retrieval.rows.growable_array import Float64s, GrowableArray, Int64s
from agentmem.retrieval.rows.message_table import IndexedMessage

PAUSE_S = 3600.0
"""A longer silence ends a sitting: what is said after it is about something else."""

REACH = 5
EARLIER = tuple(0.7**distance for distance in range(1, REACH + 1))
LATER = tuple(0.5**distance for distance in range(1, REACH + 1))
"""Weights of the rows 1, 2, ... steps before a row, and after it."""

_NONE = 0


class Neighbours:
    """
    The rows of each sitting as a chain: the messages of a branch without a pause of an hour.

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
        """Take up the next row."""
        row = len(self._before)
        self._created.append(entry.created_at.timestamp())
        self._branches.append(entry.branch_id)
        self._before.append(_NONE)
        self._after.append(_NONE)
        self._join(self._last.get(entry.branch_id, _NONE), row)
        self._last[entry.branch_id] = row

    def remove(self, rows: Sequence[int]) -> None:
        """Close the chains over *rows*: those around one become neighbours, if it was short."""
        before, after = self._before.values, self._after.values
        for row in (one + 1 for one in rows):
            earlier, later = int(before[row]), int(after[row])
            branch = int(self._branches.values[row])
            if self._last.get(branch) == row:
                # Whatever comes next is later than the sitting before this one by a pause.
                self._last[branch] = earlier
            before[row] = after[row] = after[earlier] = before[later] = _NONE
            self._join(earlier, later)

    def smoothing_links(self, rows: Int64s) -> Iterator[tuple[Int64s, Int64s, float]]:
        """
        Yield the rows that *rows*, all different, are smoothed into, with the weight.

        Each result is indices into *rows*, the rows that borrow from those, which are all
        different too, and the weight.
        """
        for links, weights in ((self._after.values, EARLIER), (self._before.values, LATER)):
            which = np.arange(len(rows))
            at = rows + 1
            for weight in weights:
                at = links[at]
                is_there = at != _NONE
                which, at = which[is_there], at[is_there]
                yield which, at - 1, weight

    def before(self, row: int) -> list[int]:
        """List the rows before *row* in its sitting, the nearest first, as far as it borrows."""
        return self._follow(self._before.values, row)

    def around(self, rows: Sequence[int]) -> set[int]:
        """Return *rows* and all rows that they are smoothed into."""
        found = set(rows)
        for row in rows:
            found.update(self._follow(self._before.values, row))
            found.update(self._follow(self._after.values, row))
        return found

    def smoothed(self, row: int, values: Float64s) -> float:
        """Return the value of *row* smoothed with those of its neighbours: (rows,)."""
        behind = zip(self._follow(self._before.values, row), EARLIER, strict=False)
        ahead = zip(self._follow(self._after.values, row), LATER, strict=False)
        return float(values[row] + sum(weight * values[at] for at, weight in chain(behind, ahead)))

    def _follow(self, links: Int64s, row: int) -> list[int]:
        found: list[int] = []
        at = int(links[row + 1])
        while at != _NONE and len(found) < REACH:
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
