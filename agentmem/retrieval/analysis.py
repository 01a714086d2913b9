"""
What the words of a text are, in any script.

Letters are words, stemmed as their language does it; scripts that are written without spaces are
cut into pairs of characters. What has digits or is spelled like a name in a program, an address
or a date is a word as a whole, and so are its parts.
"""

import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import Stemmer  # type: ignore[import-not-found]  # compiled, without stubs

from agentmem.retrieval.stop_words import LATIN_LANGUAGES, STOP_CHARACTERS, STOP_PAIRS, STOP_WORDS

# Thai to Khmer, kana, Han, Hangul: no spaces between words, or particles that stick to them.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf"
    "\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUNS = re.compile(rf"(?P<run>[{_UNSPACED}]+)|(?P<rest>[^{_UNSPACED}]+)")
_CHUNK = re.compile(r"\w+(?:[.\-:/@#+'’&]+\w+)*[#+]*")  # noqa: RUF001 - as it is typed
_PART = re.compile(r"[^\W_]+")
_CASES = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\WA-Za-z0-9_]+")
_IS_WHOLE = re.compile(r"[0-9_@#+/:]|\w\.\w|[a-z][A-Z]")
_HAS_DIGIT = re.compile(r"\d")

_SCRIPTS = (
    ("\u0370", "\u03ff", "greek"),
    ("\u0400", "\u052f", "russian"),
    ("\u0530", "\u058f", "armenian"),
    ("\u0600", "\u06ff", "arabic"),
    ("\u0900", "\u097f", "hindi"),
    ("\u0b80", "\u0bff", "tamil"),
    ("\u1f00", "\u1fff", "greek"),
)
_DEFAULT = LATIN_LANGUAGES[0]
_MIN_EVIDENCE = 2
"""Stop words of a language other than the default one that make a text one of that language."""

_MAX_REMEMBERED = 1 << 16
_LONGEST = 64
"""Characters of a word that are compared; longer ones are hashes and the like."""


@dataclass(frozen=True, slots=True)
class Words:
    """What a text says: its terms in their order, and which language it is in."""

    terms: list[str]
    language: str | None
    """None where nothing tells one language in Latin letters from another."""


class Analyzer:
    """Turns texts into the terms that an index keeps. Threads may share it."""

    def __init__(self) -> None:
        # A stemmer has a buffer that it works in, so that no two threads may use one.
        self._stemmers = threading.local()
        self._stem = lru_cache(maxsize=_MAX_REMEMBERED)(self._stem_anew)

    def passage(self, text: str) -> Words:
        """
        Give the terms of a text that is to be found.

        Characters of scripts without spaces count alone and in pairs, so that a question of one
        character finds them.
        """
        words, runs = _split(text)
        language = language_of(words)
        terms = [
            self._stem(word, language or _DEFAULT)
            for word in words
            if not _is_stop(word, language or _DEFAULT)
        ]
        for run in runs:
            terms += [*run, *_pairs(run)]
        return Words(terms, language)

    def query(self, text: str, languages: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """
        Give the terms of a question, each with others that may stand for it.

        A question is often too short to tell its language, so that a word of it stands for what
        it would be in each of *languages*, those of the texts.
        """
        words, runs = _split(text)
        mine = language_of(words)
        tried = dict.fromkeys([*([mine] if mine else []), *languages]) or {_DEFAULT: None}
        stopped = mine or next(iter(tried))
        terms = [
            tuple(dict.fromkeys(self._stem(word, language) for language in tried))
            for word in words
            if not _is_stop(word, stopped)
        ]
        for run in runs:
            pairs = _pairs(run) if len(run) > 1 else [run]
            terms += [(pair,) for pair in pairs if pair not in STOP_PAIRS]
            # A word of one character stands beside others in the text than in the question.
            terms += [(one,) for one in _singles(run) if len(run) > 1]
        return terms

    def _stem_anew(self, word: str, latin: str) -> str:
        if _HAS_DIGIT.search(word) or not word.isalpha():
            return word
        language = _script_language(word) or latin
        stemmer = getattr(self._stemmers, language, None)
        if stemmer is None:
            stemmer = Stemmer.Stemmer(language)
            setattr(self._stemmers, language, stemmer)
        return str(stemmer.stemWord(word))


def language_of(words: Sequence[str]) -> str | None:
    """Tell the language of a text in Latin letters by its stop words; None if it has too few."""
    found = Counter(
        language for word in words for language in LATIN_LANGUAGES if word in STOP_WORDS[language]
    )
    if not found:
        return None
    best = max(LATIN_LANGUAGES, key=lambda language: found[language])
    return best if best == _DEFAULT or found[best] >= _MIN_EVIDENCE else None


def unspaced_share(text: str) -> float:
    """Tell which share of the letters of *text* is of scripts without spaces."""
    unspaced = sum(len(found["run"] or "") for found in _RUNS.finditer(text))
    letters = sum(letter.isalpha() for letter in text)
    return min(1.0, unspaced / letters) if letters else 0.0


def _split(text: str) -> tuple[list[str], list[str]]:
    """Give the words of *text*, and its runs of characters of scripts without spaces."""
    words: list[str] = []
    runs: list[str] = []
    for found in _RUNS.finditer(unicodedata.normalize("NFKC", text)):
        if found["run"]:
            runs.append(found["run"])
        else:
            words += _words(found["rest"])
    return words, runs


def _words(text: str) -> Iterator[str]:
    for chunk in _CHUNK.findall(text):
        parts = _PART.findall(chunk)
        if _IS_WHOLE.search(chunk):
            whole = chunk.casefold()[:_LONGEST]
            parts = [case for part in parts for case in _cases(part)]
            if parts != [chunk]:
                yield whole
        yield from (part.casefold()[:_LONGEST] for part in parts)


def _cases(part: str) -> list[str]:
    """Cut ``getUserName`` where a capital begins a word, and ``v2`` before its number."""
    cases = _CASES.findall(part)
    return cases if len(cases) > 1 and "".join(cases) == part else [part]


def _singles(run: str) -> Iterator[str]:
    """Give the characters of a question that may be words: none of a pair that says little."""
    for i, one in enumerate(run):
        is_stop = one in STOP_CHARACTERS or {run[i - 1 : i + 1], run[i : i + 2]} & STOP_PAIRS
        if "\u4e00" <= one <= "\u9fff" and not is_stop:
            yield one


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]


def _is_stop(word: str, latin: str) -> bool:
    language = _script_language(word) or latin
    return word in STOP_WORDS.get(language, ())


@lru_cache(maxsize=_MAX_REMEMBERED)
def _script_language(word: str) -> str | None:
    """Name the language of a script that is not Latin by the first letter."""
    letter = word[:1]
    for first, last, language in _SCRIPTS:
        if first <= letter <= last:
            return language
    return None
