"""
Text analysis: from a text to index terms, in any script.

Words are letters with their marks, stemmed by language, with and without accents; scripts without
spaces are split into character bigrams. A token with digits, an identifier, an address or a date is
a term as a whole, and so are its parts.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from agentmem.retrieval.text.stemming import (
    OWN_LETTERS,
    Stems,
    languages_of_script,
    script_of,
    spellings,
)
from agentmem.retrieval.text.stop_words import (
    LATIN_LANGUAGES,
    STOP_CHARACTERS,
    STOP_PAIRS,
    STOP_WORDS,
)
from agentmem.types.words import LETTER, UNSPACED, WORD, clusters, normalize

_RUNS = re.compile(rf"(?P<run>[{UNSPACED}]+)|(?P<rest>[^{UNSPACED}]+)")
_IN_RUN = re.compile("[\u0e3f\u0e4f\u0e5a\u0e5b\u104a-\u104f\u17d4-\u17db\u30a0\u30fb]+")
"""Characters of those scripts that are not letters."""

_CHUNK = re.compile(rf"\w{WORD}*(?:[.\-:/@#+'&]+\w{WORD}*)*[#+]*")
_PART = re.compile(rf"[^\W_]{LETTER}*")
_IS_WHOLE = re.compile(r"[0-9_@#+/:]|\w\.\w|[a-z][A-Z]")
_HAN = re.compile("[\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_HANGUL = re.compile("[\uac00-\ud7a3]+")
_FOREIGN = re.compile(
    "[^A-Za-z\u00aa\u00ba\u00c0-\u02b8\u1d00-\u1dbf\u1e00-\u1eff\u2c60-\u2c7f\ua720-\ua7ff"
    "\uab30-\uab6f\ufb00-\ufb06\uff21-\uff5a]"
)
_PARTICLES = re.compile(
    "(?:에서|에게|으로|까지|부터|이랑|하고|한테|[은는이가을를에의도로와과만랑])$"
)
"""Particles at the end of a Korean noun."""

_DEFAULT = LATIN_LANGUAGES[0]
_MIN_EVIDENCE = 2
"""Minimum stop words of a language other than the default one, to detect that language."""

_MAX_REMEMBERED = 1 << 16
_LONGEST = 64
"""Maximum compared characters of a word; longer ones are mostly hashes."""


@dataclass(frozen=True, slots=True)
class Words:
    """The terms of a text in order, and its language."""

    terms: list[str]
    language: str | None
    """None where the language of a Latin-script text is undetected."""


class Analyzer:
    """Analyzes texts into index terms. Thread-safe."""

    def __init__(self) -> None:
        self._forms = lru_cache(maxsize=_MAX_REMEMBERED)(Stems().forms)

    def passage(self, text: str) -> Words:
        """
        Return the terms of a text to index.

        A word with accents is indexed with and without them, so that a query with them ranks it
        first and one without them matches too. Characters of scripts without spaces are indexed
        as unigrams and bigrams, so that a query of one character matches.
        """
        words, runs = _split(text)
        language = language_of(words)
        spoken = _Spoken(words, language or _DEFAULT)
        terms: list[str] = []
        for word in words:
            if not _is_stop(word, one := spoken.language(word)):
                terms += self._forms(word, one)
        for run in runs:
            characters = clusters(run)
            terms += [*characters, *_pairs(characters)]
        return Words(terms, language)

    def query(self, text: str, languages: Iterable[str] = ()) -> list[tuple[str, ...]]:
        """
        Return the terms of a query, each with its alternatives.

        A query is often too short for language detection, so a word has the stems of each of
        *languages*, those of the texts, and of each language of its script. A query of stop words
        only, such as a name that consists of them in another language, is searched unchanged.
        """
        words, runs = _split(text)
        mine = language_of(words)
        tried = tuple(dict.fromkeys([*([mine] if mine else []), *languages, _DEFAULT]))
        spoken = _Spoken(words, mine or tried[0])
        terms = [
            self._meant(word, languages_of_script(word) or tried)
            for word in _telling(words, spoken, has_more=bool(runs))
        ]
        for run in runs:
            characters = clusters(run)
            pairs = _pairs(characters) if len(characters) > 1 else characters
            terms += [(pair,) for pair in pairs if pair not in STOP_PAIRS]
            # A word of one character has other neighbours in the text than in the query.
            terms += [(one,) for one in _singles(characters) if len(characters) > 1]
        return terms

    def _meant(self, word: str, languages: Sequence[str]) -> tuple[str, ...]:
        """Return the alternatives of *word* of a query."""
        spelled = dict.fromkeys(one for language in languages for one in spellings(word, language))
        forms = (
            form for one in spelled for language in languages for form in self._forms(one, language)
        )
        return tuple(dict.fromkeys(forms))


class _Spoken:
    """The language of each word of a text, by the stop words of its script."""

    def __init__(self, words: Sequence[str], latin: str) -> None:
        self._words = words
        self._latin = latin
        self._known: dict[str | None, str] = {None: latin}

    def language(self, word: str) -> str:
        script = script_of(word)
        if script not in self._known:
            spoken = languages_of_script(word)
            self._known[script] = max(spoken, key=self._evidence)
        return self._known[script]

    def _evidence(self, language: str) -> int:
        stop_words = STOP_WORDS.get(language, frozenset())
        letters = OWN_LETTERS.get(language)
        return sum(
            word in stop_words or (letters is not None and letters.search(word) is not None)
            for word in self._words
        )


def language_of(words: Sequence[str]) -> str | None:
    """Detect the language of a Latin-script text by its stop words; None if it has too few."""
    found = Counter(
        language for word in words for language in LATIN_LANGUAGES if word in STOP_WORDS[language]
    )
    if not found:
        return None
    best = max(LATIN_LANGUAGES, key=lambda language: found[language])
    return best if best == _DEFAULT or found[best] >= _MIN_EVIDENCE else None


def unspaced_share(text: str) -> float:
    """Return the share of letters of *text* in scripts without spaces."""
    letters = "".join(filter(str.isalpha, text))
    return sum(len(run["run"] or "") for run in _RUNS.finditer(letters)) / max(len(letters), 1)


def foreign_share(text: str) -> float:
    """Return the share of letters of *text* in non-Latin scripts."""
    letters = "".join(filter(str.isalpha, text))
    return len(_FOREIGN.findall(letters)) / max(len(letters), 1)


def _split(text: str) -> tuple[list[str], list[str]]:
    """Return the words of *text*, and its runs of characters in scripts without spaces."""
    words: list[str] = []
    runs: list[str] = []
    for found in _RUNS.finditer(normalize(text)):
        if found["run"]:
            runs += filter(None, _IN_RUN.split(found["run"]))
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
    """Split ``getUserName`` at its capitals, and ``v2`` before its number."""
    cuts = [0]
    for place, (one, other) in enumerate(pairwise(part), start=1):
        after = part[place + 1 : place + 2]
        begins = other.isupper() and (one.islower() or (one.isupper() and after.islower()))
        if begins or (one.isdigit() != other.isdigit()):
            cuts.append(place)
    return [part[start:end] for start, end in pairwise([*cuts, len(part)])]


def _singles(characters: Sequence[str]) -> Iterator[str]:
    """Yield the characters of a query that may be words, except those of stop bigrams."""
    pairs = ["", *_pairs(characters), ""]
    for i, one in enumerate(characters):
        is_stop = one in STOP_CHARACTERS or {pairs[i], pairs[i + 1]} & STOP_PAIRS
        if _HAN.match(one) and not is_stop:
            yield one
    if _HANGUL.fullmatch(run := "".join(characters)):
        noun = _PARTICLES.sub("", run)
        if len(noun) == 1:
            yield noun


def _pairs(characters: Sequence[str]) -> list[str]:
    return [one + other for one, other in pairwise(characters)]


def _telling(words: Sequence[str], spoken: _Spoken, *, has_more: bool) -> Sequence[str]:
    """Return *words* without stop words; all of them if no others are left."""
    told = [word for word in words if not _is_stop(word, spoken.language(word))]
    return told if told or has_more else words


def _is_stop(word: str, language: str) -> bool:
    return word in STOP_WORDS.get(language, ())
