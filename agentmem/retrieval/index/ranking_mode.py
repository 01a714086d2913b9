"""Ranking parameters, by the kind of log and the kind of query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentmem.protocols import Query
from agentmem.retrieval.fusion.assistant_logs import (
    LOOK_BACK,
    NEXT_TURN,
    LogPriors,
    is_assistant_log,
    looks_back,
)
from agentmem.retrieval.lexical.bm25 import LexicalIndex, PassageTerms
from agentmem.retrieval.lexical.neighbour_smoothing import DAMPED, NEAR, WIDE, Smoothing
from agentmem.retrieval.rows.growable_array import Float32s, Float64s
from agentmem.retrieval.rows.message_table import MessageTable


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingMode:
    """Smoothing over neighbours, and priors."""

    smoothing: Smoothing
    priors: LogPriors | None = None

    def scores(self, lexical: LexicalIndex, text: str) -> Float32s:
        """Return the lexical score of each row for *text*: (rows,)."""
        is_sublinear = self.priors is not None
        return lexical.scores(text, self.smoothing, is_sublinear=is_sublinear)

    def passage_scores(
        self, lexical: LexicalIndex, text: str, passages: Mapping[int, Sequence[PassageTerms]]
    ) -> dict[int, Float64s]:
        """Return the scores of the passages of some rows, relative to the row's: (passages,)."""
        is_sublinear = self.priors is not None
        return lexical.passage_scores(text, passages, self.smoothing, is_sublinear=is_sublinear)


OF_PEOPLE: Final = RankingMode(smoothing=NEAR)
OF_LOOK_BACK: Final = RankingMode(smoothing=DAMPED, priors=LOOK_BACK)
OF_NEXT_TURN: Final = RankingMode(smoothing=WIDE, priors=NEXT_TURN)


def ranking_mode(query: Query, message_table: MessageTable) -> RankingMode:
    """Choose the parameters for *query*: named people, or a user and an assistant."""
    if not is_assistant_log(message_table):
        return OF_PEOPLE
    return OF_NEXT_TURN if query.is_turn and not looks_back(query.text) else OF_LOOK_BACK
