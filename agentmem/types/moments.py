"""Time zone conversion."""

from datetime import datetime, tzinfo
from typing import Final

MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)

PAUSE_S: Final = 3600.0
"""A longer pause ends a sitting: later messages are about another topic."""


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """
    Convert *moment* to *zone*.

    It is returned unchanged in the first and last hours of the range of datetime, where the
    conversion would overflow.
    """
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment
