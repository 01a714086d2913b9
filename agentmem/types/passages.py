"""
Passages of a long text, the unit in which it is searched and shown.

A reply of a thousand tokens takes the budget of ten statements, though one paragraph of it may be
the answer. Borders are at sentences, list items, headings and code fences, so that no passage
begins inside of one. Sizes are estimated, since neither the index nor a stored range may depend on
a tokenizer: of 60 to 120 tokens the recall is about the same, a third less is found with messages
as a whole (`benchmarks/bench_retrieval.py`).
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from agentmem.types.sentences import OMITTED, sentence_ranges
from agentmem.types.words import MARKS

TextRange = tuple[int, int]
"""Start and end of characters of a text; the end is not included."""

PASSAGE_TOKENS: Final = 120
"""Maximum size of a passage, as estimated."""

_MAX_WHOLE: Final = 150
"""Maximum size of a text that is one passage."""

_FULL_ENOUGH: Final = 60
"""Size from which a heading, a paragraph, a list item or code begins the next passage."""

_TOO_SMALL: Final = 24
"""Size up to which the last passage is joined to the one before."""

_MAX_NAMED: Final = 6
"""Maximum ranges that are numbered one by one."""

_BYTES_PER_TOKEN: Final = 4.2
"""English text; three bytes of a Chinese character are about a token too."""

_LIST_ITEM: Final = re.compile(r"\s*(?:[-*+\u2022]|\(?\w{1,3}[.)])\s")
_HEADING: Final = re.compile(r"#{1,6}\s|\*\*[^*]+\*\*:?$|__[^_]+__:?$")
_FENCE: Final = re.compile(r"```|~~~")
_BLANK: Final = re.compile(r"\s")
_MARKS: Final = re.compile(rf"[{MARKS}\u200d]+")


@dataclass(slots=True)
class _Unit:
    """A part of a text that is not divided: a sentence, an item, a heading or a line of code."""

    start: int
    end: int
    tokens: float
    begins: bool
    """Whether a passage should rather begin here than within."""


def split_passages(text: str) -> tuple[TextRange, ...]:
    """
    Return the passages of *text*: ranges that together are the whole text.

    One of up to 150 estimated tokens is one passage; others are divided into passages of up to 120.
    """
    # Of a short text, as most are, not even the bytes are counted.
    if 4 * len(text) <= _MAX_WHOLE * _BYTES_PER_TOKEN or estimated_tokens(text) <= _MAX_WHOLE:
        return ((0, len(text)),)
    found: list[_Unit] = []
    for unit in _units(text):
        last = found[-1] if found else None
        if last is None or _is_full(last, unit):
            found.append(unit)
        else:
            last.end = unit.end
            last.tokens += unit.tokens
    if len(found) > 1 and found[-1].tokens < _TOO_SMALL:
        before, last = found[-2], found[-1]
        if before.tokens + last.tokens <= _MAX_WHOLE:
            found.pop()
    ends = [*(unit.start for unit in found[1:]), len(text)]
    return tuple(zip([0, *ends[:-1]], ends, strict=True))


def estimated_tokens(text: str) -> float:
    """Return the approximate number of tokens of *text*, without a tokenizer."""
    return len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN


def joined(ranges: Iterable[TextRange]) -> tuple[TextRange, ...]:
    """Return *ranges* in order; overlapping and adjacent ones are one."""
    found: list[TextRange] = []
    for start, end in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return tuple(found)


def excerpt(text: str, ranges: Iterable[TextRange]) -> str:
    """Return the text in *ranges*, in order, with a mark for what is omitted between them."""
    pieces = (text[start:end].strip() for start, end in joined(ranges))
    return f" {OMITTED} ".join(piece for piece in pieces if piece)


def characters(ranges: Iterable[TextRange]) -> str:
    """Describe *ranges* in words, such as ", characters 120-560"; empty without any."""
    named = ", ".join(f"{start}-{end}" for start, end in ranges)
    return f", characters {named}" if named else ""


def numbered(text: str, ranges: Iterable[TextRange]) -> tuple[str, int]:
    """
    Return which passages of *text* are in *ranges*, such as "2-3, 5", and how many it has.

    Numbers are from 1, and are those of `split_passages`. Of many ranges only the first and the
    last are named, such as "25 from 1 to 253", so that a label stays short.
    """
    passages = split_passages(text)
    starts = [start for start, _ in passages]
    runs: list[tuple[int, int]] = []
    for start, end in joined(ranges):
        first = max(bisect_left(starts, start + 1), 1)
        runs.append((first, max(bisect_left(starts, end), first)))
    if len(runs) > _MAX_NAMED:
        count = sum(last - first + 1 for first, last in runs)
        return f"{count} from {runs[0][0]} to {runs[-1][1]}", len(passages)
    named = (f"{first}" if first == last else f"{first}-{last}" for first, last in runs)
    return ", ".join(named), len(passages)


def _is_full(passage: _Unit, unit: _Unit) -> bool:
    if passage.tokens + unit.tokens > PASSAGE_TOKENS:
        return True
    return unit.begins and passage.tokens >= _FULL_ENOUGH


def _units(text: str) -> Iterator[_Unit]:
    """Yield the units of *text* in order, without blank lines."""
    position, is_code, is_paragraph = 0, False, True
    for line in text.splitlines(keepends=True):
        start, position = position, position + len(line)
        bare = line.strip()
        if not bare:
            is_paragraph = True
            continue
        if _FENCE.match(bare):
            is_code = not is_code
            yield from _cut(text, start, position, begins=is_code)
        elif is_code:
            yield from _cut(text, start, position, begins=False)
        elif _HEADING.match(bare):
            yield from _cut(text, start, position, begins=True)
        else:
            begins = is_paragraph or _LIST_ITEM.match(line) is not None
            for first, end in sentence_ranges(line):
                yield from _cut(text, start + first, start + end, begins=begins)
                begins = False
        is_paragraph = False


def _cut(text: str, start: int, end: int, *, begins: bool) -> Iterator[_Unit]:
    """Yield the range as one unit, or as several of at most a passage, cut at blanks if it can."""
    tokens = estimated_tokens(text[start:end])
    while tokens > PASSAGE_TOKENS:
        size = max(1, int((end - start) * PASSAGE_TOKENS / tokens))
        middle = _last_blank(text, start + size // 2, start + size) or _border(text, start + size)
        if middle >= end:
            break
        part = estimated_tokens(text[start:middle])
        yield _Unit(start=start, end=middle, tokens=part, begins=begins)
        start, tokens, begins = middle, tokens - part, False
    yield _Unit(start=start, end=end, tokens=tokens, begins=begins)


def _last_blank(text: str, first: int, end: int) -> int | None:
    """Return the end of the last blank in the range."""
    blanks = [found.end() for found in _BLANK.finditer(text, first, end)]
    return blanks[-1] if blanks else None


def _border(text: str, middle: int) -> int:
    """Return *middle*, or where the letter that it would divide from its marks ends."""
    found = _MARKS.match(text, middle)
    return found.end() if found else middle
