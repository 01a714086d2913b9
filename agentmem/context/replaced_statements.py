# ruff: noqa: E501 - patterns and lists of words
"""
Which earlier statement a later one replaces, by its words alone.

A wrong mark is worse than none, so all of these must hold: the later sentence says that something
changed, or has the form of the earlier one with another value; questions, wishes, rumours,
conditions, denials and exceptions never count; it has the subject of the earlier one, names and owners included;
and both have a value of the same kind (a day, date, time, price, number, code or name) that
differs. `benchmarks/replacement_marks.py` measures it on dialogues.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from agentmem.context.salience import terms_of
from agentmem.types.sentences import split_sentences
from agentmem.types.words import normalize

_MAX_HOLDERS: Final = 3
"""Maximum earlier messages with a common word of two statements, or it would be too general."""

_FAR: Final = 400
"""Messages that one with words of change is compared with, ..."""

_NEAR: Final = 60
"""... and one without."""

_STEM: Final = 7
_MAX_CHARS: Final = 250
"""Characters of a message up to which it is read: a mark is about the whole of it."""

_MONTHS: Final = (
    "january|february|march|april|june|july|august|september|october|november|december|januar"
    "|februar|m\u00e4rz|mai|juni|juli|oktober|dezember|janvier|f\u00e9vrier|mars|avril|juin|juillet"
    "|ao\u00fbt|septembre|octobre|novembre|d\u00e9cembre|enero|febrero|marzo|abril|mayo|junio|julio"
    "|agosto|septiembre|octubre|noviembre|diciembre"
)
_NUMBERS: Final = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|noon|midnight"
_KINDS: Final[Mapping[str, re.Pattern[str]]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "address": r"https?://\S+|\b[\w.+-]+@[\w-]+\.[\w.]+\b",
        "money": r"[$\u20ac\u00a3]\s?\d[\d.,]*\d|[$\u20ac\u00a3]\s?\d|\b\d[\d.,]*\s?(?:eur|usd|gbp|chf|euros?|dollars?|pounds?)\b"
        r"|\d+\s?[\u5143\u5757]",
        "day": r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
        r"|\b(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)s?\b"
        r"|\b(?:lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche)\b"
        r"|\b(?:lunes|martes|mi\u00e9rcoles|jueves|viernes|s\u00e1bado|domingo)\b"
        r"|(?:\u5468|\u661f\u671f)[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u65e5\u5929]",
        "date": rf"\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}\.\d{{1,2}}\.(?:\d{{4}})?"
        rf"|\b(?:{_MONTHS})\s+\d{{1,2}}(?:st|nd|rd|th)?\b"
        rf"|\b\d{{1,2}}(?:st|nd|rd|th|\.)?(?:\s+(?:of|de))?\s+(?:{_MONTHS})\b|\bthe\s+\d{{1,2}}(?:st|nd|rd|th)\b"
        r"|\b(?-i:May)\s+\d{1,2}(?:st|nd|rd|th)?\b|\b\d{1,2}(?:st|nd|rd|th)?(?:\s+of)?\s+(?-i:May)\b"
        rf"|\b(?:{_MONTHS})\b|(?<=in )(?-i:May)\b|\d{{1,2}}\u6708(?:\d{{1,2}}[\u65e5\u53f7])?",
        "time": r"\b\d{1,2}[:.h]\d\d(?:\s?[ap]m)?\b|\b\d{1,2}\s?(?:am|pm|uhr|h)\b"
        rf"|\b(?:at|um|by|until|from|to)\s+(?:{_NUMBERS})\b|[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\d]+\u70b9\u534a?",
        "code": r"\b(?=[\w-]*\d)(?=[\w-]*[a-z])[a-z\d][\w-]*\b",
        "colour": r"\b(?:red|blue|green|yellow|black|white|gr[ea]y|orange|purple|pink|brown)\b",
        "number": r"[\u4e00\u4e8c\u4e09\u56db\u4e94\u516d\u4e03\u516b\u4e5d\u5341\u767e\u5343\u96f6\u4e24\d]+[\u697c\u53f7\u5c42\u4eba\u5929\u5468\u4e2a\u4e07]|\b\d[\d.,]*\d\b|\b\d\b"
        r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b",
    }.items()
}
_NAME: Final = re.compile(
    r"(?<!^)(?<![.!?:] )\b[A-Z\u00c0-\u00de][\w'\u2019-]+|\b[B-HJ-Z]\b|(?<!^)\bA\b"
)
_FIRST_WORD: Final = re.compile(r"\W*([A-Z\u00c0-\u00de][^\W\d_]{2,})")
"""May be a name: it counts as one unless the earlier statement has it too."""

_HELD_ONCE: Final = frozenset({"address", "code", "money"})
"""Kinds of values of which a thing usually has one; a list has several days or numbers."""

_CHANGED: Final = re.compile(
    r"^\W*(?:change|move|switch|update|reschedule|postpone)\b"
    r"|\b(?:moved|rescheduled|postponed|pushed|brought forward|shifted|changed|switched|swapped"
    r"|replaced|updated|renamed|raised|lowered|increased|reduced|cut|extended|shortened|delayed"
    r"|instead|no longer|any ?more|now|as of|from now on|actually|correction|make (?:that|it)"
    r"|i meant|scratch that|rather than|change of plans?|(?:my|our) new|newly|update(?=:)"
    r"|verschoben|verlegt|ge\u00e4ndert|statt|stattdessen|nicht mehr|jetzt|korrektur|doch|(?:mein|unser)\w* neuer?s?"
    r"|d\u00e9plac\u00e9e?|report\u00e9e?|chang\u00e9e?|plut\u00f4t|finalement|d\u00e9sormais|maintenant"
    r"|cambiad[oa]|movid[oa]|aplazad[oa]|cambia|en vez de|ahora|ya no)\b"
    r"|\u6539\u5230|\u6539\u6210|\u6539\u4e3a|\u6362\u6210|\u63a8\u8fdf|\u63d0\u524d|\u4e0d\u518d|\u73b0\u5728|\u66f4\u6b63",
    re.IGNORECASE,
)
_CORRECTED: Final = re.compile(
    r"\b(?:actually|correction|make (?:that|it)|i meant|scratch that|sorry|instead|korrektur"
    r"|stattdessen|doch|plut\u00f4t|mejor|perd\u00f3n)\b|\u66f4\u6b63|\u8bf4\u9519",
    re.IGNORECASE,
)
_ENDED: Final = re.compile(
    r"\b(?:no longer|any ?more|stopped|quit|gave up|given up|nicht mehr|ne \w+ plus|ya no)\b"
    r"|\u4e0d\u518d",
    re.IGNORECASE,
)
_ANY_MORE: Final = re.compile(r"\bany ?more\b", re.IGNORECASE)
_NOT: Final = re.compile(r"\b(?:do not|does not|don['\u2019]t|doesn['\u2019]t)\b", re.IGNORECASE)
_TITLE: Final = re.compile(r"\b(?:Dr|Mr|Mrs|Ms|Prof|Hr|Fr)\.\s+")
_DOUBTFUL: Final = re.compile(
    r"\b(?:if|whether|should|could|would|might|(?-i:may)(?!\s+\d)|maybe|perhaps|unless|suppose|imagine|consider\w*"
    r"|propos\w*|suggest\w*|wish\w*|hop(?:e|es|ing)|wants?|wanted|wondering|thinking of|ask(?:s|ed)"
    r"|asking|rumou?r\w*|heard|apparently|supposedly|said|says|thinks?|believes?|claims?|guess"
    r"|almost|nearly|likely|probably|possibly|unlikely|going to ask|try(?:ing)? to|need to decide"
    r"|wenn|falls|ob|sollten?|k\u00f6nnten?|w\u00fcrden?|vielleicht|m\u00f6chten?|will|wollen|sagt\w*|angeblich"
    r"|si|peut-\u00eatre|pourrait|voudrait|quiz\u00e1s?|podr\u00eda|quisiera|querr\u00eda|dice)\b|['\u2019]d\b"
    r"|\u5982\u679c|\u8981\u662f|\u4e5f\u8bb8|\u53ef\u80fd|\u542c\u8bf4|\u60f3|\u80fd\u4e0d\u80fd|\u5417",
    re.IGNORECASE,
)
_DENIED: Final = re.compile(
    r"\b(?:not|never|don['\u2019]t|didn['\u2019]t|doesn['\u2019]t|isn['\u2019]t|wasn['\u2019]t|weren['\u2019]t|hasn['\u2019]t|haven['\u2019]t"
    r"|won['\u2019]t|can['\u2019]t|cannot|no one|without|nicht|nie|kein\w*|pas|jamais|no|nunca|still|stays?|remains?)\b"
    r"|\u6ca1\u6709|\u6ca1|\u522b|\u4e0d\u8981|\u4ecd\u7136|\u8fd8\u662f",
    re.IGNORECASE,
)
_BESIDE: Final = re.compile(
    r"(?<!\bmy )(?<!\bour )\bnew\b|\b(?:also|too|as well|another|other|others|second|third|additional\w*|besides|in addition|both"
    r"|except|only (?:this|for)|just (?:this|for|today)|this once|one[- ]off|exceptionally"
    r"|for today|this time|temporar\w*|used to|had been|originally|back to|last (?:year|month|week)"
    r"|years? ago|in the past|once|back then|e\.g|for example|like"
    r"|auch|noch ein\w*|andere\w*|zweite\w*|ausnahmsweise|nur diese\w*|fr\u00fcher|letzte\w*"
    r"|aussi|autre|exceptionnellement|avant|tambi\u00e9n|otr[oa]|solo esta|antes)\b"
    r"|\u4e5f|\u53e6|\u53ea\u6709\u8fd9|\u4ee5\u524d|\u53bb\u5e74",
    re.IGNORECASE,
)
_STATES: Final = re.compile(
    r"\b(?:is|are|lives?|costs?|works?|starts?|ends?|begins?|closes?|opens?|leaves?|arrives?|takes place"
    r"|ist|sind|kostet|wohnt|hei\u00dft|est|habite|co\u00fbte|es|est\u00e1|vive|cuesta)\b|\u662f|\u4f4f\u5728|\u53eb",
    re.IGNORECASE,
)
_VERB: Final = re.compile(
    r"\b(?:is|are|was|were|has|have|will|lives?|costs?|works?|starts?|ends?|begins?|closes?|opens?"
    r"|leaves?|arrives?|lasts?|needs?|takes?|runs?|holds?|weighs?|moved|rescheduled|postponed|changed"
    r"|ist|sind|wurden?|wird|hat|kostet|beginnt|est|sont|a \u00e9t\u00e9|co\u00fbte|es|est\u00e1|son|cuesta)\b"
    r"|\u662f|\u6539|\u6362|\u63a8\u8fdf|\u63d0\u524d",
    re.IGNORECASE,
)
_OWNER: Final = re.compile(
    r"\b(?:(my|mine|me|i|mein\w*|ich|mon|ma|mes|je|mi|mis)|(our|we|us|unser\w*|wir|notre|nos|nous|nuestr\w*)"
    r"|(your|you|dein\w*|euer|eure|votre|ton|tu|tus?)|(his|he|him|sein\w*|er|son)|(her|hers|she|ihr\w*)"
    r"|(their|they|them|leur|sus))\b",
    re.IGNORECASE,
)
_GENERAL: Final = frozenset(
    term[:_STEM]
    for term in re.findall(
        r"\w+",
        "the this that these those and but for from with into onto about until till are was were been being"
        " has have had does did will shall its his her their our your him them they you she who which what"
        " there here then than very just please note know remember think want need like love hate use used"
        " take takes make made get got going goes come eat drink new newly now instead"
        " moved move changed change switched rescheduled postponed pushed shifted updated replaced renamed"
        " raised lowered increased reduced extended shortened delayed brought longer anymore any"
        " more actually correction meant scratch rather plan plans sorry okay today tomorrow next week month"
        " year time date day set starts start ends begins costs cost place happens held stopped quit"
        " update gave given per all one only every each noon book booked let tell told say call called name named already again"
        " der die das den dem des ein eine einen ist sind war wird wurde haben hat auf aus bei mit von zum zur"
        " und oder aber jetzt neu neue neuer statt stattdessen verschoben verlegt ge\u00e4ndert korrektur doch uhr"
        " nicht mehr les des une est sont dans pour par sur avec maintenant plut\u00f4t finalement d\u00e9sormais"
        " d\u00e9plac\u00e9 report\u00e9 chang\u00e9 los las del una son est\u00e1 con por para ahora cambiado movido"
        " aplazado mejor",
    )
)
_UNSPACED_GENERAL: Final = re.compile(
    "\u6539\u5230|\u6539\u6210|\u6539\u4e3a|\u6362\u6210|\u63a8\u8fdf\u5230?|\u63d0\u524d\u5230?|\u4e0d\u518d|\u73b0\u5728|\u66f4\u6b63"
    "|[\u7684\u4e86\u662f\u5728\u5230\u6211\u4eec\u4f60\u4ed6\u5979\uff0c\u3002\u628a\u53eb]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Statement:
    """A sentence that states something."""

    values: Mapping[str, frozenset[str]]
    named_values: Mapping[str, frozenset[str]]
    """Those before the verb, which say what it is about: "invoice 45 is", "the call on Monday was"."""

    names: frozenset[str]
    lead: frozenset[str]
    """The first word, which may be a name."""

    subject: frozenset[str]
    """Stems of what it is about, names included, values not."""

    owners: frozenset[int]
    is_state: bool
    is_changed: bool
    is_corrected: bool
    has_ended: bool


def replaced_statements(text: str, earlier: Sequence[tuple[int, str]]) -> tuple[int, ...]:
    """
    Return the positions of those of *earlier* messages whose statement *text* replaces.

    Args:
        text: a message of the user.
        earlier: positions and texts of earlier messages of the same user, oldest first, without
            those that are replaced already.
    """
    statements = list(_statements(text))
    if not statements or not earlier:
        return ()
    stems = frozenset().union(*(one.subject for one in statements))
    holders = _holders(stems, earlier)
    last = earlier[-1][0]
    near = {position for held in holders.values() if len(held) <= _MAX_HOLDERS for position in held}
    old = [
        (position, one)
        for position, said in earlier
        if position in near or position == last
        for one in _statements(said)
    ]
    common = {stem: len(held) for stem, held in holders.items()}
    found: set[int] = set()
    for new in statements:
        fitting = [
            (position, one)
            for position, one in old
            if _replaces(new, one, common, is_last=position == last)
        ]
        # Several are replaced at once only if they say the same.
        if len({_said(one) for _, one in fitting}) == 1:
            found.update(position for position, _ in fitting)
    return tuple(sorted(found))


def _holders(stems: Iterable[str], earlier: Iterable[tuple[int, str]]) -> dict[str, list[int]]:
    """Return the positions of the messages that have each stem: most are not read any further."""
    folded = [(position, normalize(said).casefold()) for position, said in earlier]
    return {stem: [position for position, said in folded if stem in said] for stem in stems}


def num_earlier(text: str) -> int:
    """
    Return how many of the messages before *text* may have a statement that it replaces.

    Most texts replace none. Without words of change only the form of a statement tells, so that
    fewer are compared.
    """
    found = 0
    for one in _statements(text):
        if one.is_changed or one.has_ended:
            return _FAR
        if one.is_state and (one.values or one.names):
            found = _NEAR
    return found


def _said(one: _Statement) -> tuple[frozenset[str], tuple[tuple[str, frozenset[str]], ...]]:
    return one.names, tuple(sorted(one.values.items()))


def _replaces(
    new: _Statement, old: _Statement, holders: Mapping[str, int], *, is_last: bool
) -> bool:
    if new.owners and old.owners and not new.owners & old.owners:
        return False
    is_specific = any(holders[term] <= _MAX_HOLDERS for term in new.subject & old.subject)
    if new.has_ended and not new.values and not old.has_ended:
        is_own = bool(new.owners & old.owners)
        return is_own and is_specific and new.subject <= old.subject and not old.values
    differing = _differing(new, old)
    if differing is None:
        return False
    if not differing:
        return _has_another_name(new, old, is_specific=is_specific)
    if any(values - old.values.get(kind, frozenset()) for kind, values in new.named_values.items()):
        return False
    return new.names | new.lead <= old.subject and (
        _corrects(new, old, is_last=is_last)
        if not new.subject
        else is_specific and _has_another_value(new, old, differing)
    )


def _corrects(new: _Statement, old: _Statement, *, is_last: bool) -> bool:
    """Whether *new*, without a subject, corrects the only value of the message before."""
    return new.is_corrected and is_last and len(old.values) == 1


def _has_another_value(new: _Statement, old: _Statement, differing: Sequence[str]) -> bool:
    if new.is_changed:
        # "From Thursday to Friday" names what it replaces.
        both = (new.values[kind] & old.values[kind] for kind in differing)
        return any(both) or new.subject <= old.subject
    # "The shop is open on Monday", "... on Friday", "fact number 3 is" are lists, not changes.
    is_one = len(differing) == 1 and (bool(new.owners) or differing[0] in _HELD_ONCE)
    is_same_form = new.subject == old.subject and new.values.keys() == old.values.keys()
    return is_one and is_same_form and new.is_state and old.is_state


def _differing(new: _Statement, old: _Statement) -> list[str] | None:
    """Return the kinds of values that differ; None where *new* is about other values."""
    differing = []
    for kind, values in new.values.items():
        known = old.values.get(kind)
        if not known:
            continue
        if len(values) > 1 and not values & known:
            return None
        if values - known:
            differing.append(kind)
    return differing


def _has_another_name(new: _Statement, old: _Statement, *, is_specific: bool) -> bool:
    """Whether the only difference is a name, as in "the contact is now Paul"."""
    added, gone = new.names - old.names, old.names - new.names
    if len(added) != 1 or len(gone) != 1 or new.values.keys() - old.values.keys():
        return False
    rest = new.subject - added
    is_about_it = bool(rest) and rest <= old.subject and is_specific
    is_same_form = rest == old.subject - gone and new.is_state and old.is_state
    return is_about_it and (new.is_changed or is_same_form)


def _statements(text: str) -> Iterator[_Statement]:
    for sentence in split_sentences(text) if len(text) <= _MAX_CHARS else ():
        if sentence.rstrip().endswith(("?", "\uff1f")):
            continue
        has_ended = _ENDED.search(sentence) is not None
        plain = _TITLE.sub("", _ENDED.sub(" ", sentence))
        if _ANY_MORE.search(sentence):
            plain = _NOT.sub(" ", plain)
        if _DOUBTFUL.search(plain) or _DENIED.search(plain) or _BESIDE.search(plain):
            continue
        one = _statement(plain, sentence, has_ended=has_ended)
        if one.values or one.names or has_ended or one.subject:
            yield one


def _statement(plain: str, sentence: str, *, has_ended: bool) -> _Statement:
    values: dict[str, frozenset[str]] = {}
    named: dict[str, frozenset[str]] = {}
    found_verb = _VERB.search(plain)
    verb = 0 if found_verb is None else found_verb.start()
    left = plain
    for kind, pattern in _KINDS.items():
        found = list(pattern.finditer(left))
        if found:
            values[kind] = frozenset(_value(match.group()) for match in found)
            named[kind] = frozenset(_value(one.group()) for one in found if one.end() <= verb)
            # Of the same length, so that places stay.
            left = pattern.sub(lambda match: " " * len(match.group()), left)
    names = frozenset(match.group().casefold()[:_STEM] for match in _NAME.finditer(left))
    first = _FIRST_WORD.match(left)
    lead = set() if first is None or _OWNER.fullmatch(first[1]) else {first[1].casefold()[:_STEM]}
    words = terms_of(_UNSPACED_GENERAL.sub(" ", left))
    subject = {word[:_STEM] for word in words} - _GENERAL
    return _Statement(
        values=values,
        named_values=named,
        names=names - _GENERAL,
        lead=frozenset(lead - _GENERAL),
        subject=frozenset(subject | (names - _GENERAL)),
        owners=frozenset(match.lastindex or 0 for match in _OWNER.finditer(plain)),
        is_state=_STATES.search(plain) is not None,
        is_changed=_CHANGED.search(sentence) is not None,
        is_corrected=_CORRECTED.search(sentence) is not None,
        has_ended=has_ended,
    )


def _value(text: str) -> str:
    """Return *text* in a form in which equal values are equal."""
    folded = " ".join(text.casefold().split()).strip(".,")
    folded = re.sub(r"^(?:at|um|by|until|from|to)\s+", "", folded)
    return re.sub(r"(?<=day)s$", "", folded)
