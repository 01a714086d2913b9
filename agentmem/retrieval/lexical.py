"""Finds messages by their words: BM25 in which a message borrows words from its neighbours."""

from collections.abc import Sequence

from agentmem.retrieval.catalog import Entry
from agentmem.retrieval.columns import Float32s


class LexicalIndex:
    """
    The words of each row. Not for two threads at once.

    Rows are those of a `Catalog` and are to be added in its order, every one of them.
    """

    def __init__(self) -> None:
        self._num_rows = 0

    def __len__(self) -> int:
        """Count the rows, removed ones included."""
        return self._num_rows

    def add(self, entries: Sequence[Entry], rows: range) -> None:
        """Take up *entries* as *rows*, which go on where the last ones ended."""
        raise NotImplementedError

    def remove(self, rows: Sequence[int]) -> None:
        """Forget what these rows said, and what their neighbours borrowed from them."""
        raise NotImplementedError

    def scores(self, text: str) -> Float32s:
        """Score every row for a query: (rows,), 0 where no word of it is near."""
        raise NotImplementedError
