"""
Boosts from query features: speaker, date, first and second person.

A boost is in standard deviations of the scores that it is added to. Together they gain, of recall
at 512 to 4,096 tokens, +.025 for lexical and +.02 for hybrid search: a speaker +.014, a time
expression in the turn +.004, a turn that is itself a question +.003, a date +.002 (five
conversations, `benchmarks/bench_retrieval.py`).
"""

import re
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from agentmem.retrieval.rows.growable_array import Float64s
from agentmem.retrieval.rows.message_table import MessageTable
from agentmem.types import Role
from agentmem.types.moments import MONTHS

# In lower case "may" and "march" are not months.
_MONTH = re.compile(rf"\b(?:{'|'.join(MONTHS)})\b|(?<!\d)(?:1[0-2]|[1-9])月")
_DAY = re.compile(
    rf"\b(\d{{1,2}})(?:st|nd|rd|th)?(?: of)? (?:{'|'.join(MONTHS)})\b"
    rf"|\b(?:{'|'.join(MONTHS)}) (\d{{1,2}})(?:st|nd|rd|th)?\b|月(\d{{1,2}})[日号]",
    re.IGNORECASE,
)
_YEAR = re.compile(r"(?<!\d)((?:19|20)\d\d)(?!\d)")
_ISO = re.compile(r"(?<!\d)(\d{4})-(\d\d)-(\d\d)(?!\d)")

_ME = re.compile(
    r"\b(?:[Ii](?!\.)|[Mm]e|[Mm]y|[Mm]ine|[Mm]yself|[Ii]ch|[Mm]ich|[Mm]ir|[Mm]eine?[mnrs]?)\b"
    r"|\b(?:[Jj]e|[Mm]oi|[Mm]on|[Mm]es|[Yy]o|[Mm]is?)\b|\b[Jj]['’]|我(?!们)"  # noqa: RUF001 - as it is typed
)
_YOU = re.compile(r"\b(?:you|your|yours|du|dich|dir|deine?[mnrs]?)\b|[你您](?!们)", re.IGNORECASE)
_REQUEST = re.compile(
    r"\b(?:can|could|would|will|kannst|könntest|würdest) (?:you|du)\b|\b(?:thank|tell) (?:you|me)\b"
    r"|\bremind me\b|[你您](?:能|可以|会)|请[你您]?|告诉我",
    re.IGNORECASE,
)


class QueryBoost(Protocol):
    """A feature of a query that boosts or penalizes some rows."""

    def of_rows(self, text: str, message_table: MessageTable) -> Float64s | None:
        """Return the boost of each row for the query *text*: (rows,); None for no boost."""
        ...


@dataclass(frozen=True, slots=True)
class NamedSpeaker:
    """
    Boost the speaker that the query names, mostly the author of the answer.

    Safe with roles only: it needs a speaker's name, or one that both speakers use.
    """

    weight: float = 1.5

    def of_rows(self, text: str, message_table: MessageTable) -> Float64s | None:
        numbers = set(message_table.names_in(text).values())
        if not numbers:
            return None
        return self.weight * np.isin(message_table.speakers, list(numbers)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class AskedOfSelf:
    """
    Boost the user for "me" in a query, and the assistant for "you".

    For logs with roles only. A query with both boosts neither; a request such as "can you" is not
    about the assistant. With all names of the conversations and the queries replaced by roles and
    pronouns: +.01.
    """

    weight: float = 0.75

    def of_rows(self, text: str, message_table: MessageTable) -> Float64s | None:
        bare = _REQUEST.sub(" ", text)
        asks = {Role.USER: bool(_ME.search(bare)), Role.ASSISTANT: bool(_YOU.search(bare))}
        numbers = [
            number
            for role, is_asked in asks.items()
            if is_asked and (number := message_table.speaker_numbers.get(role)) is not None
        ]
        if not numbers:
            return None
        return self.weight * np.isin(message_table.speakers, numbers).astype(np.float64)


@dataclass(frozen=True, slots=True)
class AsksItself:
    """
    Penalize turns that end with a question.

    For chats of named people only: a user's questions to an assistant are full of facts.
    """

    weight: float = -0.6

    def of_rows(self, text: str, message_table: MessageTable) -> Float64s | None:  # noqa: ARG002 - any question
        return self.weight * (message_table.questions & message_table.named).astype(np.float64)


@dataclass(frozen=True, slots=True)
class TellsWhen:
    """Boost turns with a time expression such as "last week", which report events."""

    weight: float = 0.3

    def of_rows(self, text: str, message_table: MessageTable) -> Float64s | None:  # noqa: ARG002 - any question
        return self.weight * message_table.timed.astype(np.float64)


@dataclass(frozen=True, slots=True)
class NamedDate:
    """Boost messages of the year, month or day that the query names, or soon after."""

    weight: float = 1.0

    def of_rows(self, text: str, message_table: MessageTable) -> Float64s | None:
        years, months, days = dates_in(text)
        if not years and not months:
            return None
        at = message_table.local(message_table.zone).astype("datetime64[s]")
        month = at.astype("datetime64[M]")
        found = np.zeros(len(message_table))
        found += np.isin(at.astype("datetime64[Y]").astype(int) + 1970, list(years))
        found += np.isin(month.astype(int) % 12 + 1, list(months))
        found += np.isin((at.astype("datetime64[D]") - month).astype(int) + 1, list(days))
        return self.weight * found


DEFAULT_BOOSTS: tuple[QueryBoost, ...] = (
    *(NamedSpeaker(), AskedOfSelf(), AsksItself()),
    *(NamedDate(), TellsWhen()),
)
"""The boosts that are safe for logs of users and assistants."""


def dates_in(text: str) -> tuple[set[int], set[int], set[int]]:
    """Return the years, the months and the days of a month in *text*."""
    years = {int(year) for year in _YEAR.findall(text)}
    months = {_month(word) for word in _MONTH.findall(text)}
    days = {int(day) for found in _DAY.findall(text) for day in found if day} if months else set()
    for _, month, day in _ISO.findall(text):
        months.add(int(month))
        days.add(int(day))
    return years, months, days


def _month(word: str) -> int:
    return int(word[:-1]) if word[0].isdigit() else MONTHS.index(word) + 1
