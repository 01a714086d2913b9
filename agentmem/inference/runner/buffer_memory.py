"""
The memory budget of the buffers of all runs.

The state of a run is also in blocks, or can be written there, so any run can be closed to free
memory: its rows are gathered again at their next step.
"""

from collections.abc import Iterable

from agentmem.inference.kv_cache.sequence import Sequence
from agentmem.inference.runner.batch_buffers import Run


class RunMemory:
    """
    Counts slots; a slot holds the keys and values of one position, over all layers.

    Args:
        limit: maximum slots of all runs together.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._runs: list[Run] = []
        self.is_short = False
        """Whether a run was evicted for another one since this was last set to False."""

    @property
    def num_slots(self) -> int:
        """Allocated slots."""
        return sum(run.num_slots for run in self._open())

    @property
    def free(self) -> int:
        return self.limit - self.num_slots

    def use(self, run: Run) -> None:
        """Add *run*, as the most recently used."""
        self._runs = [*(other for other in self._open() if other is not run), run]

    def make_room(self, wanted: int) -> None:
        """Close runs, least recently used first, until *wanted* slots are free."""
        for run in self._open():
            if self.free >= wanted:
                return
            self.is_short = True
            for sequence in run.sequences:
                run.save(sequence, partial=True)
            run.close()

    def clear(self) -> None:
        """Close all runs; state that is not in blocks is lost."""
        for run in self._runs:
            run.close()
        self._runs = []
        self.is_short = False

    def check(self, running: Iterable[Sequence]) -> None:
        """Assert that the runs are those of *running*, within their limit."""
        assert self.num_slots <= self.limit, "the buffers of runs take more than they may"
        rows = {id(sequence): run for run in self._open() for sequence in run.sequences}
        held = {id(sequence): sequence.run for sequence in running if sequence.run is not None}
        assert rows == held, "a run has rows of its own"

    def _open(self) -> list[Run]:
        return [run for run in self._runs if run.sequences]
