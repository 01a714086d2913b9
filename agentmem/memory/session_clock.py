"""The clock of a session: the user's time zone, and the date in its template."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from agentmem.context import BranchView
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.protocols import Hit
from agentmem.types import StoredMessage, Turn
from agentmem.types.moments import in_zone


def zone_of(name: str | None) -> tzinfo:
    """
    Return the time zone *name*; UTC for None.

    Raises:
        ConfigError: it does not exist, or this machine has no time zone data.
    """
    if name is None:
        return UTC
    if not isinstance(name, str) or not name:
        raise ConfigError(f"timezone is a name such as 'Europe/Berlin', got {name!r:.80}")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        if not available_timezones():
            raise ConfigError(
                f"there is no time zone {name!r:.80}: this machine has no data of time zones; "
                "install the package tzdata"
            ) from error
        raise ConfigError(
            f"there is no time zone {name!r:.80}: names are those of the IANA database, such as "
            "'Europe/Berlin' or 'UTC'"
        ) from error


def check_clock(timezone: str | None, day: date | None) -> None:
    """
    Validate the clock of a session.

    Raises:
        ConfigError: the time zone does not exist, or *day* is not a date, or is a datetime.
    """
    zone_of(timezone)
    if day is not None and (not isinstance(day, date) or isinstance(day, datetime)):
        raise ConfigError(f"date is a datetime.date, such as date(2026, 5, 2), got {day!r:.80}")


def moment_in(zone: tzinfo | None, moment: datetime | None) -> datetime | None:
    """
    Return *moment* with its time zone, or else *zone*, the user's.

    Raises:
        InvalidInputError: it is not a datetime.
    """
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise InvalidInputError(f"created_at is a datetime, got {moment!r:.80}")
    if moment.tzinfo is None and zone is not None:
        return moment.replace(tzinfo=zone)
    return moment


def seen_from(zone: tzinfo, view: BranchView) -> BranchView:
    """Return *view* with the times of its messages in *zone*, for display."""
    if zone is UTC:
        return view
    turns = (Turn(messages=tuple(_in(zone, turn.messages))) for turn in view.turns)
    groups = (replace(group, hits=hits_in(zone, group.hits)) for group in view.groups)
    left = tuple(_in(zone, view.left))
    return replace(view, turns=tuple(turns), groups=tuple(groups), left=left)


def hits_in(zone: tzinfo, hits: Sequence[Hit]) -> tuple[Hit, ...]:
    """Return *hits* with the times of their messages in *zone*."""
    messages = _in(zone, (hit.stored for hit in hits))
    return tuple(replace(hit, stored=stored) for hit, stored in zip(hits, messages, strict=True))


def _in(zone: tzinfo, messages: Iterable[StoredMessage]) -> Iterable[StoredMessage]:
    return (replace(stored, created_at=in_zone(stored.created_at, zone)) for stored in messages)
