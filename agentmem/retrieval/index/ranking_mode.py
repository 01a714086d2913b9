"""How a question is ranked, by what the log is made of and what kind of question it is."""

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
    """What words of neighbours count, and what speaks for a row whatever it says."""

    smoothing: Smoothing
    priors: LogPriors | None = None

    def scores(self, lexical: LexicalIndex, text: str) -> Float32s:
        """Score every row by the words of *text*: (rows,)."""
        is_sublinear = self.priors is not None
        return lexical.scores(text, self.smoothing, is_sublinear=is_sublinear)


OF_PEOPLE: Final = RankingMode(smoothing=NEAR)
OF_LOOK_BACK: Final = RankingMode(smoothing=DAMPED, priors=LOOK_BACK)
OF_NEXT_TURN: Final = RankingMode(smoothing=WIDE, priors=NEXT_TURN)


def ranking_mode(text: str, message_table: MessageTable) -> RankingMode:
    """Choose how to rank for the query *text*: people with names, or a user and an assistant."""
    if not is_assistant_log(message_table):
        return OF_PEOPLE
    return OF_LOOK_BACK if looks_back(text) else OF_NEXT_TURN
