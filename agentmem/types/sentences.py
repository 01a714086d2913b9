"""
Sentence segmentation, so that quotations are whole sentences.

Half a sentence can reverse the meaning: its verb, its negation or its condition may be in the other
half. So doubtful boundaries do not split: after abbreviations, initials, ordinals and ellipses,
before a lower-case letter, in wrapped lines, and in a list with its introductory line.
"""

import re
from collections.abc import Iterator
from typing import Final

OMITTED: Final = "[...]"
"""Between two quoted sentences of one message where others are omitted."""

_CLOSERS: Final = "[\"'\u2019\u201d\u00bb\u203a)\\]\u300d\u300f\uff09\u3011\u300b*_`]*"
_SPACED: Final = rf"[.!?\u037e\u0589\u061f\u06d4\u1362\u1367\u1368]+{_CLOSERS}(?=\s)"
# Full stops without a following space: CJK, Indic, Burmese, Khmer, Tibetan.
_SOLID: Final = (
    "(?:[\u3002\uff61\uff01\uff1f\u0964\u0965\u104a\u104b\u17d4\u17d5\u0f0d\u0f0e]"
    rf"|\uff0e(?!\d))+{_CLOSERS}"
)
_END: Final = re.compile(f"{_SPACED}|{_SOLID}|{re.escape(OMITTED)}(?=\\s|$)")

_ABBREVIATIONS: Final = frozenset(
    re.findall(
        r"\w+",
        # Titles, and abbreviations before a name or a number.
        "dr dra drs mr mrs ms mx prof sr sra jr st ste mt ft rev hon gov sen rep gen col maj capt"
        " lt sgt cmdr pres supt hr fr hrn dipl ing mag mme mlle dott sig avv ud uds lic no nos nr"
        " num núm pp pág fig figs eq eqs ch chap sec vol vols ed eds art abs abt bd tel fax str av"
        " ave rd apt ext bldg dept div inc ltd co corp bros gmbh cie blvd"
        # Abbreviations within a sentence.
        " vs cf ca approx est esp incl inkl excl exkl zzgl vgl bzw ggf evtl max min resp al ibid"
        " viz eg ie zb bspw sog gem bes insb allg geb gest verh etc usw usf"
        " \u0443\u043b \u0433\u0433 \u0442\u0435\u043b \u0441\u0442\u0440 \u0440\u0443\u0431"
        " \u043a\u043e\u043f \u0442\u044b\u0441 \u043c\u043b\u043d \u043f\u0440 \u0441\u043c"
        # Days and months.
        " mon tue tues wed thu thur thurs fri sat sun jan feb febr mar apr jun jul aug sep sept oct"
        " okt nov dec dez",
    )
)
_VOWEL: Final = re.compile("[aeiouyäöüáéíóúàèìòùâêîôûåæøœ]")
_LATIN: Final = re.compile("[a-zà-ÿœ]+")
_WORD_BEFORE: Final = re.compile(r"[^\s(\[{\"'\u201c\u201e\u00ab]*\Z")
_LETTERS_WITH_DOTS: Final = re.compile(r"\w{1,2}(?:\.\w{1,2})+")
_ORDINAL: Final = re.compile(r"\d{1,2}")
_QUOTED_BY: Final = "\"'\u2019\u201d\u00bb\u203a)\\]\u300d\u300f\uff09\u3011\u300b"
_ELLIPSIS: Final = re.compile(rf"(?:\.{{2,}}|\u2026){_CLOSERS}\Z")
_PAIRS: Final = (
    "()",
    "\uff08\uff09",
    "\u201c\u201d",
    "\u00ab\u00bb",
    "\u300c\u300d",
    "\u300e\u300f",
)

_OPENERS: Final = re.compile('["' + "".join(re.escape(pair[0]) for pair in _PAIRS) + "]")

_LIST_ITEM: Final = re.compile(r"\s*(?:[-*\u2022\u2013+]|\(?\w{1,3}[.)])\s")
_ROW: Final = re.compile(r"\s*(?:[|#>{}<\[\"]|\(?\w{1,3}[.)]\s|[-*\u2022\u2013+]\s|\d)")
_LINE_END: Final = re.compile(
    rf"[.!?;\u2026\u3002\uff01\uff1f\u061f\u06d4\u0964\u0965]{_CLOSERS}\Z"
)
_OPENS: Final = (":", "\uff1a")
_GOES_ON: Final = (",", "\uff0c", "\u3001", "\u060c", "(", "-", "\u2013", "\u2014", "/", "&")
_WRAPPED: Final = 40
"""Minimum length of a line without a full stop that continues in the next one."""

_AROUND: Final = 1000
"""Maximum distance to the other end of a bracket or a quotation."""


def split_sentences(text: str) -> list[str]:
    """
    Split *text* into its sentences, each on one line and in order.

    The omission mark of this module is returned as a separate item.
    """
    blocks = (" ".join(block.split()) for block in _blocks(text))
    pieces = (block[a:b].strip() for block in blocks for a, b in sentence_ranges(block))
    return [piece for piece in pieces if piece]


def sentence_ranges(line: str) -> Iterator[tuple[int, int]]:
    """Yield start and end of each sentence of one line; together they are the whole line."""
    begin = 0
    may_quote = _OPENERS.search(line) is not None
    for found in _END.finditer(line):
        if found.end() < len(line) and may_quote and _is_inside(line, begin, found.end()):
            continue
        if found.end() == len(line) or _is_end(line, begin, found):
            yield begin, found.end()
            begin = found.end()
    if begin < len(line):
        yield begin, len(line)


def _blocks(text: str) -> Iterator[str]:
    """Return the lines of *text*, with wrapped ones and those of one list joined."""
    block: list[str] = []
    is_list = False
    for line in map(str.strip, text.splitlines()):
        if block and not (line and _is_joined(block[-1], line, is_list=is_list)):
            yield " ".join(block)
            block, is_list = [], False
        if line:
            block.append(line)
            is_list = is_list or line.endswith(_OPENS)
    if block:
        yield " ".join(block)


def _is_joined(last: str, line: str, *, is_list: bool) -> bool:
    """Whether *line* continues the line *last*, or is in a list after its colon."""
    if last.endswith((*_OPENS, *_GOES_ON)) or (is_list and _LIST_ITEM.match(line)):
        return True
    if _LINE_END.search(last[-20:]) or _ROW.match(line):
        return False
    return line[0].islower() or len(last) >= _WRAPPED


def _is_end(line: str, begin: int, found: re.Match[str]) -> bool:
    """Whether the matched punctuation ends the sentence that begins at *begin*."""
    following = line[found.end() : found.end() + 40].lstrip()
    if found[0] == OMITTED or following.startswith(OMITTED):
        return True
    if found[0].rstrip(_QUOTED_BY) != found[0]:
        # A quotation may end within a sentence.
        return line[found.end()].isspace() and not following[:1].islower()
    if not found[0].startswith("."):
        return True
    said = line[max(begin, found.start() - 40) : found.end()]
    word = _WORD_BEFORE.search(said[: -len(found[0])])
    return _ELLIPSIS.search(said) is None and word is not None and not _is_shortened(word[0])


def _is_shortened(word: str) -> bool:
    """Whether a full stop after *word* belongs to it: abbreviation, initial or ordinal."""
    word = word.lower()
    if len(word) < 2 or word in _ABBREVIATIONS:  # noqa: PLR2004 - a letter
        return True
    if _LATIN.fullmatch(word):
        return _VOWEL.search(word) is None
    return bool(_ORDINAL.fullmatch(word) or _LETTERS_WITH_DOTS.fullmatch(word))


def _is_inside(line: str, begin: int, end: int) -> bool:
    """Whether a bracket or a quotation is open at *end*, and is closed later."""
    before, after = line[max(begin, end - _AROUND) : end], line[end : end + _AROUND]
    is_quoted = before.count('"') % 2 == 1 and '"' in after
    return is_quoted or any(
        before.count(opener) > before.count(closer) and closer in after for opener, closer in _PAIRS
    )
