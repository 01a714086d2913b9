"""
The date that a chat template prints: one that is named, never the clock's.

The same messages must give the same prompt tomorrow. Templates take the date as a variable or ask
a function for it, in any format; transformers hands no functions over, so that one is a macro.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from agentmem.types.moments import MONTHS

DEFAULT_DATE = date(2024, 7, 26)
"""Printed where no date is named; templates of Llama 3 have it as theirs."""

_CLOCK = "strftime_now"
_CODES = "aAbBdeFDGHIjmMpRSTuUVwWyY"
_UNPADDED = "dHIjmMSy"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MACRO = (
    f"{{%- macro {_CLOCK}(format) -%}}{{{{- format"
    + "".join(f" | replace('%-{code}', named_date['-{code}'])" for code in _UNPADDED)
    + "".join(f" | replace('%{code}', named_date['{code}'])" for code in _CODES)
    + " -}}{%- endmacro +%}"
)


def with_named_date(source: str) -> str:
    """Return the template *source* with its clock replaced by the date in `date_variables`."""
    return (_MACRO if _CLOCK in source else "") + source


def date_variables(day: date) -> Mapping[str, Any]:
    """Return the variables from which a template reads *day*, in English in every locale."""
    moment = datetime.combine(day, time(), tzinfo=UTC)
    month, weekday = MONTHS[day.month - 1], _DAYS[day.weekday()]
    named = {code: moment.strftime(f"%{code}") for code in _CODES}
    named |= {"a": weekday[:3], "A": weekday, "b": month[:3], "B": month, "p": "AM"}
    named |= {f"-{code}": named[code].lstrip("0") or "0" for code in _UNPADDED}
    return {"date_string": f"{day:%d} {month[:3]} {day.year}", "named_date": named}
