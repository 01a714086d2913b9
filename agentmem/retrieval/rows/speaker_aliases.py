"""
Speaker aliases, learned from forms of address.

A message has the name of its speaker, or only a role. A name by which one of two speakers
addresses the other belongs to the other: the addressee of "Thanks, Anna!" is Anna. So a name in a
query identifies the likely speaker of the answer, even in a log with roles only.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from agentmem.retrieval.text.analyzer import unspaced_share
from agentmem.retrieval.text.stop_words import STOP_WORDS
from agentmem.types import Role
from agentmem.types.words import MARKS, stands_alone

_GREETING = (
    "[Hh]ey|[Hh]i|[Hh]ello|[Dd]ear|[Tt]hanks|[Tt]hank you|[Cc]ongrats|[Ss]orry|[Ww]ow|[Oo]h|[Bb]ye"
    "|[Hh]allo|[Dd]anke|[Bb]onjour|[Mm]erci|[Hh]ola|[Gg]racias|[Cc]iao|[Gg]razie"
)
_NAME = rf"[A-ZÀ-ÖØ-ÞА-Я](?:[^\W\d_]|[{MARKS}])+"
_ADDRESS = re.compile(
    rf"(?:^|[.!?,]\s+|\b(?:{_GREETING})[,!]?\s+)({_NAME})(?=\s*[,.!?]|\s*$)", re.MULTILINE
)
_WORDS = re.compile(rf"\b{_NAME}")
_TWO = 2
_MIN_TIMES = 3
_MIN_SHARE = 0.8
"""Minimum uses of a name, and minimum share by one speaker, for an alias."""


class SpeakerAliases:
    """Names and aliases of the speakers of one search scope. Not thread-safe."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._named: Counter[int] = Counter()
        self._talking: Counter[int] = Counter()
        self._addressed: dict[str, Counter[int]] = {}
        self._rows: dict[int, _Spoken] = {}

    @property
    def numbers(self) -> dict[str, int]:
        """The number of each speaker, by name, or by role without one."""
        return self._numbers

    def add(self, row: int, role: Role, speaker: str, text: str) -> int:
        """Record a message's speaker and forms of address; return the speaker's number."""
        number = self._numbers.setdefault(speaker, len(self._numbers))
        is_tool = role is Role.TOOL
        spoken = _Spoken(
            by=number,
            is_named=speaker != role,
            is_talk=not is_tool,
            called=() if is_tool else tuple(_ADDRESS.findall(text)),
        )
        self._rows[row] = spoken
        self._count(spoken, 1)
        return number

    def remove(self, rows: Sequence[int]) -> None:
        """Remove the evidence of these rows."""
        for row in rows:
            self._count(self._rows.pop(row), -1)

    def found_in(self, text: str) -> dict[str, int]:
        """Return the speakers that *text* names: their numbers by the names as spelled."""
        found: dict[str, int] = {}
        for name, number in self._numbers.items():
            if self._named[number] > 0:
                found |= dict.fromkeys(_spellings(name, text), number)
        for word in _WORDS.findall(text):
            if word not in found and (called := self._called(word)) is not None:
                found[word] = called
        return found

    def _called(self, name: str) -> int | None:
        """Return which of two speakers the other one calls *name*."""
        by = self._addressed.get(name)
        talking = [number for number, times in self._talking.items() if times > 0]
        if by is None or len(talking) != _TWO or by.total() < _MIN_TIMES:
            return None
        for caller, called in (talking, reversed(talking)):
            if by[caller] >= _MIN_SHARE * by.total():
                return called
        return None

    def _count(self, spoken: "_Spoken", times: int) -> None:
        self._named[spoken.by] += times * spoken.is_named
        self._talking[spoken.by] += times * spoken.is_talk
        for name in spoken.called:
            by = self._addressed.setdefault(name, Counter())
            by[spoken.by] += times
            if not by.total():
                del self._addressed[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spoken:
    by: int
    is_named: bool
    is_talk: bool
    called: tuple[str, ...]


def _spellings(name: str, text: str) -> list[str]:
    """Find *name*, or its first word, in *text*; ignore case if *text* is all lower case."""
    is_lower = text == text.lower()
    for one in dict.fromkeys([name, *name.split()[:1]]):
        if unspaced_share(one) > 0:
            found = [one] if one in text else []
        elif is_lower and one.lower() in STOP_WORDS["english"]:
            found = []
        else:
            written = re.finditer(re.escape(one), text, re.IGNORECASE if is_lower else 0)
            found = [place[0] for place in written if stands_alone(place)]
        if found:
            return found
    return []
