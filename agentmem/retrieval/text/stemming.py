"""
Stemming: the index terms of a word, with and without accents.

Without a stemmer for a script, words are truncated by length, and the prefix letters of Hebrew and
Ethiopic words are stripped.
"""

import re
import threading
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import Stemmer  # type: ignore[import-not-found]  # compiled, without stubs

from agentmem.types.words import MARKS, fold

_OTHER: Final = (
    "\u0700-\u086f\u0a00-\u0b7f\u0c00-\u0dff\u0f00-\u0fff\u10a0-\u10ff\u1800-\u18af"
    "\u1b00-\u1c7f\u1c90-\u1cbf\u2d00-\u2d7f\ua800-\ua9df\uabc0-\uabff\U00010000-\U0001afff"
)
"""Syriac, Thaana, N'Ko, the other scripts of India, Tibetan, Georgian, Mongolian and more."""

_IN_ARABIC_SCRIPT: Final = ("arabic", "persian", "urdu", "kurdish")

# Name of the script, its letters, and its candidate languages, the first by default.
_SCRIPTS: Final = tuple(
    (script, re.compile(f"[{letters}]"), languages)
    for script, letters, languages in (
        ("greek", "\u0370-\u03ff\u1f00-\u1fff", ("greek",)),
        ("cyrillic", "\u0400-\u052f\u1c80-\u1c8f\u2de0-\u2dff\ua640-\ua69f", ("russian",)),
        ("armenian", "\u0530-\u058f", ("armenian",)),
        ("hebrew", "\u0590-\u05ff", ("hebrew",)),
        (
            "arabic",
            "\u0600-\u06ff\u0750-\u077f\u0870-\u08ff",
            ("arabic", "persian", "urdu", "kurdish"),
        ),
        ("devanagari", "\u0900-\u097f\ua8e0-\ua8ff", ("hindi", "nepali", "marathi")),
        ("bengali", "\u0980-\u09ff", ("bengali",)),
        ("tamil", "\u0b80-\u0bff", ("tamil",)),
        ("ethiopic", "\u1200-\u139f\u2d80-\u2ddf\uab00-\uab2f", ("amharic",)),
        (
            "other",
            _OTHER,
            ("other",),
        ),
    )
)
_STEMMERS: Final = frozenset(Stemmer.algorithms())
_PREFIXES: Final = {
    "hebrew": re.compile("^(?:[וש]?[כל]?[הבלמכש]|ו)(?=.{3})"),  # noqa: RUF001
    "amharic": re.compile("^[በለከየ](?=.{2})"),
}
"""And, the, in, to, of, that: prefixes of the next word."""

_TYPED: Final = {"ä": "ae", "ö": "oe", "ü": "ue", "ø": "oe", "å": "aa"}
_UMLAUTS: Final = re.compile(f"[{''.join(_TYPED)}]")
_TYPED_UMLAUTS: Final = re.compile("(?<![aeq])([aou])e(?![aeiou])")
_WITH_UMLAUTS: Final = ("german", "swedish", "finnish")

OWN_LETTERS: Final = {"kurdish": re.compile("[ەێۆڕڵۋېۇۈ]")}
"""Letters that no other language of the script has: Kurdish and Uyghur."""

_MARK: Final = re.compile(f"[{MARKS}]")
_HAS_DIGIT: Final = re.compile(r"\d")
_STEM_LETTERS: Final = (3, 4, 6)
"""Prefixes of a word, without its marks, that are its terms where there is no stemmer."""


class Stems:
    """Stems words. Thread-safe."""

    def __init__(self) -> None:
        # A stemmer has a buffer, so it is not thread-safe.
        self._stemmers = threading.local()

    def forms(self, word: str, language: str) -> tuple[str, ...]:
        """
        Return the terms of *word*, in lower case, in *language*.

        The first is without accents. An equal spelling has all terms in common, and a spelling
        without accents at least one.
        """
        return tuple(dict.fromkeys(self._forms(word, language)))

    def _forms(self, word: str, language: str) -> Iterator[str]:
        bare = fold(word)
        letters = _MARK.sub("", bare)
        if _HAS_DIGIT.search(word) or not letters.isalpha():
            yield from (bare, word)
        elif language in _STEMMERS:
            stem = self._stem(word, language)
            yield from (fold(stem), self._stem(bare, language), stem)
        else:
            yield from (bare, word)
            if language in _PREFIXES:
                yield _PREFIXES[language].sub("", bare)
            if language not in ("hebrew", "arabic"):
                # A short word may have four letters by its ending.
                shortest = 2 if len(letters) <= _STEM_LETTERS[1] else 0
                lengths = [n for n in (shortest, *_STEM_LETTERS) if n and n <= max(len(letters), 3)]
                yield from (f"{letters[:length]}*" for length in lengths)

    def _stem(self, word: str, language: str) -> str:
        stemmer = getattr(self._stemmers, language, None)
        if stemmer is None:
            stemmer = Stemmer.Stemmer(language)
            setattr(self._stemmers, language, stemmer)
        return str(stemmer.stemWord(word)) or word


def spellings(word: str, language: str) -> tuple[str, ...]:
    """Return *word*, and its ASCII spelling, as for German umlauts."""
    spelled = _UMLAUTS.sub(lambda found: _TYPED[found[0]], word)
    if spelled == word and language in _WITH_UMLAUTS:
        spelled = _TYPED_UMLAUTS.sub(r"\1", word)
    return (word,) if spelled == word else (word, spelled)


def script_of(word: str) -> str | None:
    """Return the script of *word* by its first letter; None for Latin and non-letters."""
    found = _script(word[:1])
    return None if found is None else found[0]


def languages_of_script(word: str) -> tuple[str, ...]:
    """Return the candidate languages of the script of *word*; empty for Latin."""
    found = _script(word[:1])
    return () if found is None else found[1]


@lru_cache(maxsize=1 << 14)
def _script(letter: str) -> tuple[str, tuple[str, ...]] | None:
    for script, letters, languages in _SCRIPTS:
        if letters.match(letter):
            return script, languages
    return None
