"""Ranking parameters, by the kind of log and the kind of query."""

from dataclasses import dataclass
from typing import Final

from agentmem.retrieval.fusion.assistant_logs import (
    LOOK_BACK,
    NEXT_TURN,
    LogPriors,
    is_assistant_log,
    looks_back,
)
from agentmem.retrieval.lexical.bm25 import LexicalIndex
from agentmem.retrieval.lexical.neighbour_smoothing import DAMPED, NEAR, WIDE, Smoothing
from agentmem.retrieval.rows.growable_array import Float32s
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


OF_PEOPLE: Final = RankingMode(smoothing=NEAR)
OF_LOOK_BACK: Final = RankingMode(smoothing=DAMPED, priors=LOOK_BACK)
OF_NEXT_TURN: Final = RankingMode(smoothing=WIDE, priors=NEXT_TURN)


def ranking_mode(text: str, message_table: MessageTable) -> RankingMode:
    """Choose the parameters for the query *text*: named people, or a user and an assistant."""
    if not is_assistant_log(message_table):
        return OF_PEOPLE
    return OF_LOOK_BACK if looks_back(text) else OF_NEXT_TURN
