"""
How recalled messages are written: as one message, in as few tokens as say who, when and what.

Hits stand in the order in which they were said, under a line with the day and the time for each
sitting. The year stands where it changes. With a mark for each message in place of a line for each
sitting, half of a budget of 512 tokens was marks.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from agentmem.protocols import Hit
from agentmem.types import BranchId, Message, RecalledHit, Role, TextPart

HEADING = "Recalled from the earlier conversation:"
OTHER_SESSION = "in another session"

PAUSE = timedelta(hours=1)
"""A longer silence begins a new sitting, with a line of its own."""

_MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sitting:
    source: BranchId | None
    hits: tuple[Hit, ...]

    @property
    def began(self) -> datetime:
        return self.hits[0].stored.created_at


def recall_message(hits: Sequence[Hit]) -> tuple[Message, ...]:
    """Write *hits* as one message, oldest first; nothing for none."""
    if not hits:
        return ()
    text = "\n".join([HEADING, *_lines(hits)])
    return (Message(role=Role.USER, parts=(TextPart(text=text),)),)


def line_of(hit: Hit) -> str:
    """Write who said what; the text is as it was said, byte for byte."""
    message = hit.stored.message
    return f"{message.name or message.role}: {message.text}"


def source_of(hit: Hit) -> BranchId | None:
    """Tell apart what is not one conversation: None for the own one, else the other's branch."""
    return None if hit.is_local else hit.stored.branch_id


def header_of(at: datetime, source: BranchId | None, *, with_year: bool) -> str:
    """Write when a sitting was, to the minute, in UTC."""
    at = at.astimezone(UTC)
    year = f" {at.year}" if with_year else ""
    other = "" if source is None else f", {OTHER_SESSION}"
    return f"{at.day} {_MONTHS[at.month - 1]}{year} {at:%H:%M}{other}"


def year_of(at: datetime) -> int:
    """Give the year that a header would show."""
    return at.astimezone(UTC).year


def recalled_hit(hit: Hit) -> RecalledHit:
    """Give what a prompt tells of a hit that it shows."""
    return RecalledHit(
        message_id=hit.stored.id,
        position=hit.stored.position if hit.is_local else None,
        score=hit.score,
        ranks=tuple(sorted(hit.ranks.items())),
    )


def _lines(hits: Sequence[Hit]) -> Iterator[str]:
    shown: int | None = None
    for sitting in sorted(_sittings(hits), key=_when):
        year = year_of(sitting.began)
        yield header_of(sitting.began, sitting.source, with_year=year != shown)
        shown = year
        yield from map(line_of, sitting.hits)


def _sittings(hits: Sequence[Hit]) -> Iterator[_Sitting]:
    sources: dict[BranchId | None, list[Hit]] = {}
    for hit in sorted(hits, key=lambda hit: (hit.stored.position, hit.stored.id)):
        sources.setdefault(source_of(hit), []).append(hit)
    for source, said in sources.items():
        begin = 0
        for end in range(1, len(said) + 1):
            if end == len(said) or _pause(said[end - 1], said[end]) > PAUSE:
                yield _Sitting(source=source, hits=tuple(said[begin:end]))
                begin = end


def _pause(one: Hit, other: Hit) -> timedelta:
    return abs(other.stored.created_at - one.stored.created_at)


def _when(sitting: _Sitting) -> tuple[datetime, int, int]:
    return sitting.began, sitting.source or 0, sitting.hits[0].stored.position
