"""
The parameters of ranking are those whose recall is in docs/benchmarks.md.

No data set is part of the project, so that no test here can tell a better value from a worse one:
a change of one is measured again with `benchmarks/bench_retrieval.py`, and the figures written.
"""

from agentmem.retrieval.fusion import rrf
from agentmem.retrieval.fusion.assistant_logs import LOOK_BACK, NEXT_TURN, LogPriors
from agentmem.retrieval.index import passage_ranking
from agentmem.retrieval.lexical import bm25
from agentmem.retrieval.lexical.neighbour_smoothing import DAMPED, NEAR, WIDE, Smoothing
from agentmem.types import passages


def test_the_parameters_of_ranking_are_the_measured_ones():
    assert LogPriors(user=2.0, price=0.7) == LOOK_BACK
    assert LogPriors(user=2.5, price=1.5, recency=2.0, opening=1.0, dense=0.7) == NEXT_TURN
    assert Smoothing(earlier=0.7, later=0.5, reach=5, within=0.3) == NEAR
    assert Smoothing(earlier=0.7, later=0.5, reach=5, within=0.3, max_lent=40) == DAMPED
    assert Smoothing(earlier=0.8, later=0.8, reach=8, within=0.5, max_lent=60) == WIDE
    assert (bm25.K1, bm25.B, rrf._K) == (2.0, 0.75, 10)
    assert (passage_ranking.DIVIDED, passages.PASSAGE_TOKENS) == (128, 120)
