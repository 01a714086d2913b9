"""Moments in the time zone of a user."""

from datetime import datetime, tzinfo
from typing import Final

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

PAUSE_S: Final = 3600.0
"""A longer silence ends a sitting: what is said after it is about something else."""


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """
    Return *moment* as it is in *zone*.

    In the first and the last hours that a date can have it stays in its own zone, since the other
    has no date for it.
    """
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment
