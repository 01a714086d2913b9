"""
Compact encoding of layouts and truncated runs, the bulk of the prompt log.

A layout has each position once, so run lengths suffice, and a summary that covers many runs is
stored once. The format of older versions, span by span, is still read.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from agentmem.types import DisplayForm, Span, Tier
from agentmem.types.passages import TextRange

_TIERS: Final[Mapping[Tier | None, str]] = {
    None: "h",
    Tier.TEMPLATE: "t",
    Tier.PINNED: "p",
    Tier.SUMMARY: "s",
    Tier.RECENT: "w",
    Tier.RETRIEVED: "r",
    Tier.CURRENT: "c",
}
_FORMS: Final[Mapping[DisplayForm, str]] = {
    DisplayForm.FULL: "",
    DisplayForm.CLIPPED: "C",
    DisplayForm.STUB: "S",
    DisplayForm.PASSAGES: "P",
    DisplayForm.REPLACED: "R",
    DisplayForm.DELETED: "D",
}
_TIER_OF: Final = {letter: tier for tier, letter in _TIERS.items()}
_FORM_OF: Final = {letter: form for form, letter in _FORMS.items()}
_RUN: Final = re.compile(
    "(?P<length>[0-9]*)(?P<tier>[htpswrc])(?P<source>[0-9]*)(?P<form>[CSPRD]?)"
    "(?:k(?P<number>[0-9]+))?(?:x(?P<times>[0-9]+))?(?:e(?P<passages>[0-9]+-[0-9]+(?:,[0-9]+-[0-9]+)*))?"
    "(?:y(?P<superseded_by>[0-9]+))?"
)
_RANGE: Final = re.compile("([0-9]+)(?:-([0-9]+))?(?::([0-9]+))?")


def number_of(span: Span) -> int | None:
    """
    Return the number that is stored of a span: the anchor of a recalled one, else `kept_chars`.

    The tier determines which, so layouts of all versions have one format.
    """
    return span.anchor if span.tier is Tier.RETRIEVED else span.kept_chars


def named_number(tier: Tier | None, number: int | None) -> dict[str, int | None]:
    """Return the number of `number_of`, by the name of its field."""
    return {"anchor" if tier is Tier.RETRIEVED else "kept_chars": number}


def encode_layout(layout: Sequence[Span]) -> dict[str, Any] | None:
    """Encode a layout; None if it does not have each position from 1 in order."""
    keys: dict[str, int] = {}
    runs: list[str] = []
    end = 0
    for span in layout:
        is_next = span.first == end + 1 <= span.last
        number = number_of(span)
        if not is_next or span.times < 1 or (number is not None and number < 0):
            return None
        numbers = [*chain.from_iterable(span.passages), span.superseded_by or 0]
        if any(one < 0 for one in numbers):
            return None
        end = span.last
        length = span.last - span.first + 1
        source = "" if span.source is None else keys.setdefault(span.source, len(keys))
        written = "" if number is None else f"k{number}"
        times = "" if span.times == 1 else f"x{span.times}"
        size = "" if length == 1 else length
        parts = ",".join(f"{start}-{stop}" for start, stop in span.passages)
        later = "" if span.superseded_by is None else f"y{span.superseded_by}"
        shown = f"{_FORMS[span.form]}{written}{times}{parts and f'e{parts}'}{later}"
        runs.append(f"{size}{_TIERS[span.tier]}{source}{shown}")
    return {"runs": " ".join(runs)} | ({"of": list(keys)} if keys else {})


def decode_layout(written: Mapping[str, Any]) -> tuple[Span, ...]:
    """
    Decode the output of `encode_layout`.

    Raises:
        ValueError: it has another format.
        TypeError: the key of a summary is not a string.
    """
    runs, keys = written.get("runs"), written.get("of", [])
    if not isinstance(runs, str) or not isinstance(keys, list):
        raise ValueError("a layout has no runs, or no list of summaries")  # noqa: TRY004 - read from a row
    spans: list[Span] = []
    end = 0
    for run in runs.split():
        found = _RUN.fullmatch(run)
        if found is None or (found["source"] and int(found["source"]) >= len(keys)):
            raise ValueError(f"{run!r:.50} is not a run of a layout")
        first, end = end + 1, end + int(found["length"] or 1)
        tier = _TIER_OF[found["tier"]]
        number = None if found["number"] is None else int(found["number"])
        spans.append(
            Span(
                first=first,
                last=end,
                tier=tier,
                form=_FORM_OF[found["form"]],
                **named_number(tier, number),
                source=keys[int(found["source"])] if found["source"] else None,
                times=int(found["times"] or 1),
                passages=_passages(found["passages"] or ""),
                superseded_by=int(found["superseded_by"]) if found["superseded_by"] else None,
            )
        )
    return tuple(spans)


def _passages(written: str) -> tuple[TextRange, ...]:
    ranges = (one.split("-") for one in written.split(",") if one)
    return tuple((int(start), int(end)) for start, end in ranges)


Range = tuple[int, int, int | None]
"""First and last position, and the tokens of the run, if counted."""


def encode_ranges(ranges: Iterable[Range]) -> str:
    """Encode runs of positions with their tokens."""
    return " ".join(
        f"{first}{'' if last == first else f'-{last}'}{'' if tokens is None else f':{tokens}'}"
        for first, last, tokens in ranges
    )


def decode_ranges(written: str) -> list[Range]:
    """
    Decode the output of `encode_ranges`.

    Raises:
        ValueError: it has another format.
    """
    ranges: list[Range] = []
    for one in written.split():
        found = _RANGE.fullmatch(one)
        if found is None:
            raise ValueError(f"{one!r:.50} is not a run of positions")
        first, last, tokens = found.groups()
        ranges.append((int(first), int(last or first), None if tokens is None else int(tokens)))
    if not ranges:
        raise ValueError("there is no run of positions")
    return ranges
