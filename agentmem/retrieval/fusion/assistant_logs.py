"""
Priors for logs of a user and an assistant, who have roles and no names.

There a short statement of the user is worth more than the thousand words that answer it, a long
reply takes the room of ten, and what is asked is often no question but the next turn of the talk.
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

_LONGER: Final = 1.5
"""How much longer the replies are than the user's messages where a model writes them."""

_CHARS_PER_TOKEN: Final = 4.2
_FRAME: Final = 24
"""Tokens of a line beside its text, and about the least that an answer takes."""

_MAX_SENTENCES: Final = 2
_SENTENCE_END: Final = re.compile(r"[.!?]\s|[。！？]")  # noqa: RUF001 - as it is typed
_QUESTION: Final = re.compile("[?？؟]")  # noqa: RUF001 - as it is typed


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPriors:
    """
    What speaks for a row of such a log whatever it says.

    Args:
        user: added to what the user said.
        price: of the logarithm of the tokens that a row takes.
        recency: added to the newest sitting, and less with each sitting that is older.
        opening: added to the first message of a sitting, which says what it is about.
    """

    user: float
    price: float
    recency: float = 0.0
    opening: float = 0.0

    def of_rows(self, message_table: MessageTable, rows: Int64s) -> Float64s:
        """Return the prior of each of *rows*: (n,)."""
        tokens = message_table.sizes[rows] / _CHARS_PER_TOKEN + _FRAME
        is_user = _is_said_by(message_table, Role.USER)[rows]
        found: Float64s = self.user * is_user.astype(np.float64) - self.price * np.log(tokens)
        if self.recency or self.opening:
            ages, is_opening = _sittings(message_table.created[rows])
            found += self.recency * np.exp(-ages / _FADES_AFTER)
            found += self.opening * is_opening
        return found


_FADES_AFTER: Final = 20.0
"""Sittings after which the part of recency that is left is 1 / e."""

LOOK_BACK: Final = LogPriors(user=2.0, price=1.0)
"""For a question about the past."""

NEXT_TURN: Final = LogPriors(user=1.5, price=1.5, recency=2.0, opening=1.0)
"""For an ordinary turn of the talk, as "yes, the second one, and book it"."""


def looks_back(text: str) -> bool:
    """Whether *text* is a short question, and not an ordinary next turn."""
    sentences = [one for one in _SENTENCE_END.split(text.strip()) if one.strip()]
    return _QUESTION.search(text) is not None and len(sentences) <= _MAX_SENTENCES


def is_assistant_log(message_table: MessageTable) -> bool:
    """
    Whether most rows have no names, and replies are longer than what they answer.

    Two people who chat write about as much as each other; there a prior for one side loses .03.
    """
    alive = message_table.alive
    if 2 * np.count_nonzero(message_table.named & alive) >= np.count_nonzero(alive):
        return False
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
    """Return of each moment how many sittings ago it was, and whether it opened its own."""
    order = np.argsort(created, kind="stable")
    gaps = np.diff(created[order], prepend=-np.inf) > PAUSE_S
    numbers = np.cumsum(gaps)
    ages, is_opening = np.empty(len(created)), np.empty(len(created), np.bool_)
    ages[order] = numbers[-1:] + 1 - numbers
    is_opening[order] = gaps
    return ages, is_opening
