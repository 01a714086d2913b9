"""
The date in a chat template: a given one, never the clock's.

The same messages must give the same prompt tomorrow. Templates read the date from a variable or a
function, in any format; transformers passes no functions, so here it is a macro.
"""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Any

from agentmem.types.moments import MONTHS

DEFAULT_DATE = date(2024, 7, 26)
"""The date where none is given; the default of Llama 3 templates."""

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
    """Return the template *source* with its clock calls replaced by `date_variables`."""
    return (_MACRO if _CLOCK in source else "") + source


def date_variables(day: date) -> Mapping[str, Any]:
    """Return the template variables for *day*, in English in every locale."""
    moment = datetime.combine(day, time(), tzinfo=UTC)
    month, weekday = MONTHS[day.month - 1], _DAYS[day.weekday()]
    named = {code: moment.strftime(f"%{code}") for code in _CODES}
    named |= {"a": weekday[:3], "A": weekday, "b": month[:3], "B": month, "p": "AM"}
    named |= {f"-{code}": named[code].lstrip("0") or "0" for code in _UNPADDED}
    return {"date_string": f"{day:%d} {month[:3]} {day.year}", "named_date": named}
