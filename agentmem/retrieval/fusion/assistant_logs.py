"""
Ranking priors for logs of a user and an assistant, who have roles but no names.

There a short statement of the user is worth more than a reply of a thousand words, a long reply
takes the budget of ten, and the query is often the next turn, not a question.
In standard deviations of the scores that they are added to. On five users of RealMem the share of
the evidence shown whole at 512 / 1,024 / 2,048 / 4,096 tokens rises, by words alone, from
.17 / .24 / .30 / .39 (`benchmarks/bench_retrieval.py`).
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from agentmem.retrieval.rows.growable_array import Bools, Float64s, Int64s
from agentmem.retrieval.rows.message_table import MessageTable
from agentmem.types import Role
from agentmem.types.moments import PAUSE_S
from agentmem.types.passages import PASSAGE_TOKENS

_LONGER: Final = 1.5
"""Minimum ratio of the lengths of replies and user messages in logs with a model."""

_CHARS_PER_TOKEN: Final = 4.2
_FRAME: Final = 24
"""Tokens of a line besides its text, and about the minimum of an answer."""

_MAX_SENTENCES: Final = 2
_SENTENCE_END: Final = re.compile(r"[.!?]\s|[。！？]")  # noqa: RUF001 - as it is typed
_QUESTION: Final = re.compile("[?？؟]")  # noqa: RUF001 - as it is typed


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPriors:
    """
    Query-independent priors of a row of such a log.

    Args:
        user: boost of the user's messages.
        price: penalty per logarithm of a row's tokens.
        recency: boost of the newest sitting, decaying with each older one.
        opening: boost of the first message of a sitting, which names its topic.
        dense: weight of the dense list; the lexical one has 1. The vector of a turn of several
            sentences is less specific: +.005 with 0.7.
    """

    user: float
    price: float
    recency: float = 0.0
    opening: float = 0.0
    dense: float = 1.0

    def of_passages(self, row_size: int, sizes: Float64s) -> Float64s:
        """
        Return the priors of the passages of a message, relative to that of its row: (n,).

        Args:
            row_size: characters of the message.
            sizes: characters of its passages, in order.
        """
        whole = min(row_size / _CHARS_PER_TOKEN, PASSAGE_TOKENS) + _FRAME
        prices = self.price * np.log((sizes / _CHARS_PER_TOKEN + _FRAME) / whole)
        found: Float64s = -_LATER * np.minimum(np.arange(len(sizes)), _LATE) - prices
        return found

    def of_rows(self, message_table: MessageTable, rows: Int64s) -> Float64s:
        """Return the prior of each of *rows*: (n,)."""
        # A long message is shown by its passages, so its price is that of one.
        tokens = np.minimum(message_table.sizes[rows] / _CHARS_PER_TOKEN, PASSAGE_TOKENS)
        is_user = _is_said_by(message_table, Role.USER)[rows]
        found: Float64s = self.user * is_user.astype(np.float64) - self.price * np.log(
            tokens + _FRAME
        )
        if self.recency or self.opening:
            ages, is_opening = _sittings(message_table.created[rows])
            found += self.recency * np.exp(-ages / _FADES_AFTER)
            found += self.opening * is_opening
        return found


_FADES_AFTER: Final = 20.0
"""Sittings after which recency has decayed to 1 / e."""

_LATER: Final = 0.4
"""Penalty of a passage for each one before it in its message, ..."""

_LATE: Final = 3
"""... up to this many: a reply begins with its point, and a message with its topic."""

LOOK_BACK: Final = LogPriors(user=2.0, price=0.7)
"""For a question about earlier messages."""

NEXT_TURN: Final = LogPriors(user=2.5, price=1.5, recency=2.0, opening=1.0, dense=0.7)
"""For an ordinary turn, such as "yes, the second one, and book it"."""


def looks_back(text: str) -> bool:
    """Whether *text* is a short question, not an ordinary next turn."""
    sentences = [one for one in _SENTENCE_END.split(text.strip()) if one.strip()]
    return _QUESTION.search(text) is not None and len(sentences) <= _MAX_SENTENCES


def is_assistant_log(message_table: MessageTable) -> bool:
    """
    Whether most speakers have no names, and there are tools, or replies longer than the questions.

    Two people in a chat write about equal amounts; there a prior for one side loses .03. With tools
    the evidence found is .983 instead of .967, and results are best without a prior of their own
    (`bench_retrieval.py --tools`).
    """
    alive, results = message_table.alive, message_table.results
    num_said = np.count_nonzero(alive & ~results)
    if 2 * np.count_nonzero(message_table.named & alive) >= num_said:
        return False
    if (results & alive).any():
        return True
    asked, replied = (
        message_table.sizes[_is_said_by(message_table, role) & alive]
        for role in (Role.USER, Role.ASSISTANT)
    )
    if not len(asked) or not len(replied):
        return False
    return float(replied.mean()) >= _LONGER * float(asked.mean())


def _is_said_by(message_table: MessageTable, role: Role) -> Bools:
    number = message_table.speaker_numbers.get(role, -1)
    is_said: Bools = (message_table.speakers == number) & ~message_table.named
    return is_said


def _sittings(created: Float64s) -> tuple[Float64s, Bools]:
    """Return the age of each time in sittings, and whether it opened its sitting."""
    order = np.argsort(created, kind="stable")
    gaps = np.diff(created[order], prepend=-np.inf) > PAUSE_S
    numbers = np.cumsum(gaps)
    ages, is_opening = np.empty(len(created)), np.empty(len(created), np.bool_)
    ages[order] = numbers[-1:] + 1 - numbers
    is_opening[order] = gaps
    return ages, is_opening
