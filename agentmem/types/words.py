r"""
Word boundaries and normalization of spelling, in any script.

Python's ``\w`` has no combining marks, so that it splits दिल्ली into three consonants. Here a mark
belongs to the preceding letter, optional vowel points are dropped, and accents can be folded.
Language detection is elsewhere.
"""

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from itertools import chain, groupby
from typing import Final

UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u1b00-\u1b7f\u3005-\u3007\u3021-\u3029"
    "\u3040-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua980-\ua9fe"
    "\uaa60-\uaadf\uac00-\ud7ff\uf900-\ufaff\U0001aff0-\U0001b16f\U00020000-\U0003ffff"
)
"""
Content of a character class: scripts without spaces between words, or with attached particles:
Thai to Khmer, Burmese, kana, bopomofo, Han with its rare planes, Hangul.
"""

# Ranges with marks and digits; between them are Han, Hangul and extinct scripts.
_SEARCHED: Final = (
    *(range(0x300, 0x3100), range(0xA600, 0xAC00), range(0xFB00, 0x12000)),
    *(range(0x16A00, 0x17000), range(0x1BC00, 0x1BCA0), range(0x1CF00, 0x1FC00)),
)


def _in_category(kind: str) -> list[int]:
    """Return the code points whose category begins with *kind*."""
    return [code for code in chain(*_SEARCHED) if unicodedata.category(chr(code)).startswith(kind)]


def _ranges(codes: Iterable[int]) -> str:
    """Return *codes* (ascending) as the content of a character class."""
    found: list[str] = []
    for _, run in groupby(enumerate(codes), key=lambda pair: pair[1] - pair[0]):
        numbers = [code for _, code in run]
        found.append(f"{chr(numbers[0])}-{chr(numbers[-1])}")
    return "".join(found)


MARKS: Final = _ranges(_in_category("M"))
"""Content of a character class: combining marks."""

WORD: Final = rf"[\w{MARKS}]"
"""A character of a word: a letter, a digit, an underscore, or a mark on one of them."""

_IN_WORD: Final = re.compile(WORD)

LETTER: Final = rf"(?:[^\W_]|[{MARKS}])"
"""The same without the underscore."""

# Invisible characters: soft hyphens, bidi marks, joiners, zero-width spaces, variation selectors.
_UNSEEN: Final = (
    *(range(0xAD, 0xAE), range(0x34F, 0x350), range(0x61C, 0x61D), range(0x180B, 0x1810)),
    *(range(0x200B, 0x2010), range(0x202A, 0x202F), range(0x2060, 0x2070)),
    *(range(0xFE00, 0xFE10), range(0xFEFF, 0xFF00), range(0xE0000, 0xE0200)),
)
# Vowel points and cantillation marks, which most texts omit, and the Arabic tatweel.
_POINTS: Final = (
    *(range(0x591, 0x5BE), range(0x5BF, 0x5C0), range(0x5C1, 0x5C3), range(0x5C4, 0x5C6)),
    *(range(0x5C7, 0x5C8), range(0x610, 0x61B), range(0x640, 0x641), range(0x64B, 0x660)),
    *(range(0x670, 0x671), range(0x6D6, 0x6DD), range(0x6DF, 0x6E5), range(0x6E7, 0x6E9)),
    *(range(0x6EA, 0x6EE), range(0x711, 0x712), range(0x730, 0x74B), range(0x8CA, 0x8E2)),
    range(0x8E3, 0x900),
)
_QUOTES: Final = dict.fromkeys(map(ord, "\u2019\u02bc\u02bb\u02b9\u05f3\uff07\u055a"), "'")
_DIGITS: Final = {code: str(unicodedata.decimal(chr(code))) for code in _in_category("Nd")}
_ALWAYS: Final = str.maketrans(
    {chr(code): None for code in chain(*_UNSEEN, *_POINTS)}
    | {chr(code): kept for code, kept in (*_QUOTES.items(), *_DIGITS.items())}
    | {"\u05f4": '"'}
)
# Between Hebrew letters these are part of an abbreviation or of a sound.
_HEBREW_SIGNS: Final = re.compile("(?<=[\u05d0-\u05ea])[\"'](?=[\u05d0-\u05ea])")

# Letters that Unicode does not decompose, and their usual spelling without a stroke.
_PLAIN: Final = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "ŧ": "t", "ı": "i", "ĸ": "k", "ŋ": "n"}  # noqa: RUF001
    | {"æ": "ae", "œ": "oe", "ß": "ss", "þ": "th", "ƒ": "f", "ɓ": "b", "ɗ": "d", "ƙ": "k"}
    | {"ё": "е", "ѐ": "е", "ѝ": "и", "ґ": "г"}  # noqa: RUF001 - Cyrillic
    # Arabic: alef with marks, and letters that Persian and Urdu encode differently.
    | dict.fromkeys("أإآٱ", "ا")  # noqa: RUF001
    | dict.fromkeys("ىیېے", "ي")
    | {"ک": "ك", "ڪ": "ك", "ة": "ه", "ہ": "ه", "ۀ": "ه", "ۂ": "ه", "ۃ": "ه", "ھ": "ه"}  # noqa: RUF001
)
_FOLDED: Final = (range(0x300, 0x370), range(0x1AB0, 0x1B00), range(0x1DC0, 0x1E00))
_ACCENTS: Final = re.compile(f"[{_ranges(chain(*_FOLDED))}]+")
# Cyrillic letters that decompose although their mark is not an accent.
_KEPT: Final = re.compile("[йЙўЎїЇ]")
# A nasal before a consonant of its own row may be written as a dot: हिन्दी and हिंदी.
_INDIC: Final = tuple(
    (
        re.compile(
            f"[{chr(base + 0x19)}{chr(base + 0x1E)}{chr(base + 0x23)}{chr(base + 0x28)}"
            f"{chr(base + 0x2E)}]{chr(base + 0x4D)}(?=[{chr(base + 0x15)}-{chr(base + 0x2D)}])"
        ),
        re.compile(chr(base + 0x01)),
        chr(base + 0x02),
        chr(base + 0x3C),
    )
    for base in (0x900, 0x980, 0xA00, 0xA80, 0xB00)
)
_IS_INDIC: Final = re.compile("[\u0900-\u0b7f]")

# A letter with its marks; stackers of Khmer and Burmese take the next consonant too.
_CLUSTER: Final = re.compile(rf"[^{MARKS}](?:[\u17d2\u1039\u1a60][^{MARKS}]|[{MARKS}])*")


def normalize(text: str) -> str:
    """
    Return *text* normalized for word segmentation.

    NFKC, ASCII digits, and without optional characters: vowel points of Arabic and Hebrew, tatweel,
    soft hyphens, joiners and other invisible characters.
    """
    if text.isascii():
        return text
    return _HEBREW_SIGNS.sub("", unicodedata.normalize("NFKC", text).translate(_ALWAYS))


@lru_cache(maxsize=1 << 14)
def fold(word: str) -> str:
    """
    Return *word* in lower case, without the accents that are often omitted in typing.

    Latin, Greek and Cyrillic accents, the forms of the Arabic alef, the dots below Indic letters.
    Letters that only look accented, such as й, are kept.
    """
    if word.isascii():
        return word.lower()
    word = word.casefold()
    kept = _KEPT.search(word) is not None
    pieces = re.split(f"({_KEPT.pattern})", word) if kept else [word]
    folded = "".join(
        piece
        if _KEPT.fullmatch(piece)
        else _ACCENTS.sub("", unicodedata.normalize("NFD", piece)).translate(_PLAIN)
        for piece in pieces
    )
    # The Armenian ligature has another letter in upper case.
    folded = unicodedata.normalize("NFC", folded).translate(_PLAIN).replace("եւ", "եվ")
    if _IS_INDIC.search(folded):
        folded = unicodedata.normalize("NFD", folded)
        for nasal, moon, dot, nukta in _INDIC:
            folded = moon.sub(dot, nasal.sub(dot, folded.replace(nukta, "")))
        folded = unicodedata.normalize("NFC", folded)
    return folded


def clusters(text: str) -> list[str]:
    """Split *text* into letters with their marks (grapheme clusters)."""
    return _CLUSTER.findall(text)


def stands_alone(found: re.Match[str]) -> bool:
    """Whether a match is a whole word, not part of a longer one."""
    around = (
        found.string[found.start() - 1 : found.start()],
        found.string[found.end() : found.end() + 1],
    )
    return _IN_WORD.match(around[0]) is None and _IN_WORD.match(around[1]) is None


def same_line(text: str) -> str:
    """Return *text* with single spaces and folded case, to compare texts."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())
