"""
The searchable messages of a search scope: one row per message, its metadata as columns.

It decides which rows a query may see. The texts are in the indexes, not here.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import numpy.typing as npt

from agentmem.protocols import Query
from agentmem.retrieval.rows.growable_array import Bools, Float64s, GrowableArray, Int64s
from agentmem.retrieval.rows.speaker_aliases import SpeakerAliases
from agentmem.types import (
    BranchId,
    ImagePart,
    MessageId,
    Origin,
    Role,
    SessionId,
    StoredMessage,
    TextPart,
)
from agentmem.types.data_urls import without_data
from agentmem.types.lines import line_of
from agentmem.types.reasoning import split_reasoning

_WHEN = re.compile(
    r"\b(?:yesterday|today|tonight|tomorrow|ago|last|next|days?|weeks?|weekend|months?|years?"
    r"|this (?:morning|spring|summer|fall|winter)|(?:mon|tues|wednes|thurs|fri|satur|sun)day"
    r"|january|february|march|april|june|july|august|september|october|november|december"
    r"|gestern|heute|morgen|letzte[nrs]?|nächste[nrs]?|woche|wochenende|monat|jahr"
    r"|hier|aujourd'hui|demain|semaine|mois|ayer|hoy|mañana|semana)\b"
    r"|昨天|今天|明天|前天|后天|上周|下周|上个月|下个月|去年|今年|明年|周末|星期|[0-9]月",
    re.IGNORECASE,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_S = 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedMessage:
    """A message in searchable form."""

    message_id: MessageId
    branch_id: BranchId
    session_id: SessionId
    position: int
    created_at: datetime
    role: Role
    speaker: str
    """The message's name, else its role."""

    text: str = field(repr=False)
    """Its text parts without reasoning, and the descriptions of its images; never blank."""

    line: str = field(default="", repr=False)
    """Deduplication key; None for a message without duplicates."""


def indexed_message(
    stored: StoredMessage, session_id: SessionId, *, with_line: bool = True
) -> IndexedMessage | None:
    """
    Return the searchable form of *stored*; None for an empty or synthetic message.

    Reasoning is excluded, in separate parts or between tags. The line is needed only for a
    `MessageTable`.
    """
    message = stored.message
    if stored.origin in (Origin.SYNTHETIC, Origin.DELETED, Origin.DAMAGED):
        return None
    texts = [
        without_data(part.text)
        for part in message.parts
        if isinstance(part, TextPart) or (isinstance(part, ImagePart) and part.alt)
    ]
    text = "\n".join(texts)
    if message.role is Role.ASSISTANT:
        text = split_reasoning(text)[1]
    if not text.strip():
        return None
    return IndexedMessage(
        message_id=stored.id,
        branch_id=stored.branch_id,
        session_id=session_id,
        position=stored.position,
        created_at=stored.created_at,
        role=message.role,
        speaker=message.name or str(message.role),
        text=text,
        line=line_of(message) if with_line else "",
    )


class MessageTable:
    """
    The rows of one search scope, in order of insertion.

    Row numbers are stable; a removed row becomes invisible.
    Columns are views of the current rows: read-only, and invalid after an `add`. Not thread-safe.
    """

    def __init__(self) -> None:
        self._message_ids = GrowableArray(np.int64)
        self._branch_ids = GrowableArray(np.int64)
        self._session_ids = GrowableArray(np.int64)
        self._positions = GrowableArray(np.int64)
        self._created = GrowableArray(np.float64)
        self._speakers = GrowableArray(np.int32)
        self._sizes = GrowableArray(np.int64)
        self._named = GrowableArray(np.bool_)
        self._results = GrowableArray(np.bool_)
        self._questions = GrowableArray(np.bool_)
        self._timed = GrowableArray(np.bool_)
        self._alive = GrowableArray(np.bool_)
        self._lines = GrowableArray(np.int64)
        self._line_numbers: dict[int, int] = {}
        self._rows: dict[int, int] = {}
        self._names = SpeakerAliases()
        self._subtasks: set[int] = set()
        self.zone: tzinfo = UTC
        """The time zone of the current query."""

    def __len__(self) -> int:
        """Count the rows, removed ones included."""
        return len(self._alive)

    @property
    def num_alive(self) -> int:
        return len(self._rows)

    @property
    def message_ids(self) -> Int64s:
        return self._message_ids.values

    @property
    def branch_ids(self) -> Int64s:
        return self._branch_ids.values

    @property
    def session_ids(self) -> Int64s:
        return self._session_ids.values

    @property
    def positions(self) -> Int64s:
        return self._positions.values

    @property
    def created(self) -> Float64s:
        """Seconds since 1970, UTC."""
        return self._created.values

    @property
    def sizes(self) -> Int64s:
        """Characters of its text."""
        return self._sizes.values

    @property
    def speakers(self) -> npt.NDArray[np.int32]:
        """The speaker, as a number of `speaker_numbers`."""
        return self._speakers.values

    @property
    def speaker_numbers(self) -> Mapping[str, int]:
        """The number of each speaker, by name, or by role without one."""
        return self._names.numbers

    def names_in(self, text: str) -> Mapping[str, int]:
        """
        Return the speakers that *text* names: their numbers by the names as spelled there.

        Also a speaker without a name whom the other one addresses by a name.
        """
        return self._names.found_in(text)

    @property
    def named(self) -> Bools:
        """Whether the speaker has a name, not only a role; the names of tools do not count."""
        return self._named.values

    @property
    def results(self) -> Bools:
        """Whether it is the result of a tool."""
        return self._results.values

    @property
    def questions(self) -> Bools:
        """Whether it is mainly a question."""
        return self._questions.values

    @property
    def timed(self) -> Bools:
        """Whether it has a time expression."""
        return self._timed.values

    @property
    def lines(self) -> Int64s:
        """Group number of each row, equal for duplicates."""
        return self._lines.values

    @property
    def alive(self) -> Bools:
        return self._alive.values

    def add(self, entries: Sequence[IndexedMessage]) -> range:
        """
        Add *entries*, none of which may exist, and return their rows.

        Those of one branch must be in order of position.
        """
        rows = range(len(self), len(self) + len(entries))
        for row, entry in zip(rows, entries, strict=True):
            assert entry.message_id not in self._rows, f"message {entry.message_id} added twice"
            self._rows[entry.message_id] = row
            speaker = self._names.add(row, entry.role, entry.speaker, entry.text)
            self._message_ids.append(entry.message_id)
            self._branch_ids.append(entry.branch_id)
            self._session_ids.append(entry.session_id)
            self._positions.append(entry.position)
            self._created.append(entry.created_at.timestamp())
            self._speakers.append(speaker)
            self._sizes.append(len(entry.text))
            is_result = entry.role is Role.TOOL
            self._named.append(entry.speaker != entry.role and not is_result)
            self._results.append(is_result)
            self._questions.append(is_question(entry.text))
            self._timed.append(tells_when(entry.text))
            self._alive.append(True)
            line = _hash(entry.line) if entry.line else -1 - row
            self._lines.append(self._line_numbers.setdefault(line, len(self._line_numbers)))
        return rows

    def remove(self, message_ids: Iterable[MessageId]) -> list[int]:
        """Hide these messages; return the rows of those that were visible."""
        rows = [row for one in message_ids if (row := self._rows.pop(one, None)) is not None]
        self.alive[rows] = False
        self._names.remove(rows)
        return rows

    def row_of(self, message_id: MessageId) -> int | None:
        """Return the row of a message that exists."""
        return self._rows.get(message_id)

    def local(self, zone: tzinfo) -> Float64s:
        """Return `created` as local time in *zone*, encoded as if UTC."""
        if zone is UTC or not len(self.created):
            return self.created
        days, which = np.unique(np.floor(self.created / _DAY_S), return_inverse=True)
        begins, ends = (
            np.array([_offset(zone, (day + more) * _DAY_S) for day in days.tolist()])
            for more in (0, 1)
        )
        offsets: Float64s = begins[which]
        # Days with a change of the UTC offset, time by time.
        for row in np.flatnonzero((begins != ends)[which]).tolist():
            offsets[row] = _offset(zone, float(self.created[row]))
        return self.created + offsets

    def note_subtask(self, branch_id: BranchId) -> None:
        """Make the messages of this branch visible to its own session only."""
        self._subtasks.add(branch_id)

    def mask(self, query: Query) -> Bools:
        """
        Return for each row whether it is visible to *query*.

        Of the searching session the ranges that *query* names; of other sessions the main branch:
        unpromoted messages of subtasks are private.
        """
        seen: Bools = self.alive & (self.session_ids != query.session_id)
        if self._subtasks and query.search_scope.session_id is None:
            seen &= ~np.isin(self.branch_ids, list(self._subtasks))
        for branch_id, (first, last) in query.visible.items():
            rows = np.flatnonzero(self.branch_ids == branch_id)
            positions = self.positions[rows]
            seen[rows] = self.alive[rows] & (first <= positions) & (positions <= last)
        if query.search_scope.session_id is not None:
            seen &= self.session_ids == query.search_scope.session_id
        return seen


def _hash(line: str) -> int:
    """Return a 64-bit hash of *line*."""
    return int.from_bytes(hashlib.blake2b(line.encode(), digest_size=8).digest(), "little")


def _offset(zone: tzinfo, moment: float) -> float:
    """Return the UTC offset of *zone* in seconds."""
    try:
        offset = (_EPOCH + timedelta(seconds=moment)).astimezone(zone).utcoffset()
    except OverflowError:
        offset = None  # the first and the last day of the range of datetime
    return 0.0 if offset is None else offset.total_seconds()


def is_question(text: str) -> bool:
    """Return whether *text* ends with a question, in any script."""
    return text.rstrip().endswith(("?", "\uff1f", "\u061f", "\u037e"))


def tells_when(text: str) -> bool:
    """Return whether *text* has a time expression: a day, a month or a relative time."""
    return _WHEN.search(text) is not None
