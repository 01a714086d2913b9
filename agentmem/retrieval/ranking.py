"""Makes one ranking of what words and meaning say."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agentmem.protocols import Query
from agentmem.retrieval.catalog import Catalog
from agentmem.retrieval.columns import Float32s, Int64s


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Rows, best first, at most as many as were wanted."""

    rows: Int64s  # (n,)
    scores: Float32s  # (n,), falling
    ranks: Mapping[str, Int64s]
    """For ``lexical`` and ``dense`` the place of each row in that list, from 1 on; 0 for none."""


def rank(catalog: Catalog, lexical: Float32s, dense: Float32s | None, query: Query) -> Ranking:
    """
    Rank the rows that *query* may find.

    Args:
        catalog: what the rows are.
        lexical: the score of each row by its words: (rows,).
        dense: the inner product of each row with the query: (rows,). NaN where a row is not
            embedded yet, -inf where a search that is not exact did not come upon it; None where
            nothing was embedded.
        query: what is looked for, and by whom.
    """
    raise NotImplementedError


def dense_query(text: str, speakers: Iterable[str]) -> str:
    """
    Give what is to be embedded of a question: without the names of who took part.

    A name draws the vector towards everything that this speaker ever said.
    """
    raise NotImplementedError
