"""
Sentences that bind or inform, which a summary carries before everything else.

A rule, a limit, a deadline, a decision, the state of the work, a preference, a name or a number is
needed word for word much later, and its frequency is not informative: the most repeated text is
filler. So each statement gets a strength by surface signals in several languages, without a model.
``benchmarks/compaction_survival.py`` measures how many planted statements survive five rounds of
compaction.
"""

import math
import re
from typing import Final

from agentmem.types import Role

MIN_STRENGTH: Final = 2.0
"""Minimum strength of a standing fact: one that binds, has a label, or two specific values."""

_BINDS_WEIGHT: Final = 2.0
_LABEL_WEIGHT: Final = 3.0
_STATE_WEIGHT: Final = 1.5
_PREFERENCE_WEIGHT: Final = 1.0
_SPECIFIC_WEIGHT: Final = 1.0
_MAX_COUNTED: Final = 2
"""Different signals of one kind that count: a list of ten numbers is not ten times a fact."""

_ASSISTANT_SHARE: Final = 0.5
_QUESTION_SHARE: Final = 0.4
_RECEIPT_SHARE: Final = 0.2

_LENGTH_EXPONENT: Final = 0.4
_FRAME: Final = 24
"""Characters of a line beside its text, about."""

_BINDS: Final = re.compile(
    r"\b(?:never|always|must(?:n['’]t)?|forbidden|prohibit\w*|not allowed|requires?|required|only"  # noqa: RUF001
    r"|at most|at least|no more than|no later than|under no circumstances|do not|don['’]t|may not"  # noqa: RUF001
    r"|shall|unless|until|deadlines?|due|cap(?:ped)?|limit(?:s|ed)?|budget|approv\w+|allerg\w+"
    r"|confidential|secret|ensure|refuse|escalate|stop|consent|permission"
    r"|nie(?:mals)?|immer|muss|müssen|darf|dürfen|verboten|nur|mindestens|höchstens|frist"
    r"|jamais|toujours|doit|doivent|interdit\w*|seulement|obligatoire|au plus|au moins|délai"
    r"|nunca|siempre|debe[ns]?|prohibid\w+|solo|sólo|obligatori\w+|como máximo|plazo"
    r"|никогда|всегда|нельзя|обязательно|только|должн\w+|запрещ\w+|срок)\b"
    "|必须|必須|不要|不得|禁止|只能|不能|最多|至少|截止|预算|預算|絶対|しないで|してはいけ|期限",
    re.IGNORECASE,
)
_STATE: Final = re.compile(
    r"\b(?:next (?:step|up)|current(?:ly)?|in progress|remaining|blocked|awaiting|open question"
    r"|decid\w+|agreed?|chose\w*|working on|we are (?:in|on|at|working)|based on|phase|branch|todo"
    r"|nächster schritt|aktuell|entschieden|étape|décid\w+|en cours|decidi\w+|actualmente"
    r"|решил\w*|сейчас|следующ\w+)\b|决定|決定|目前|下一步|正在|进行中|現在|次の",
    re.IGNORECASE,
)
_PREFERENCE: Final = re.compile(
    r"\b(?:prefer\w*|wants?|likes?|dislikes?|hates?|loves?|favou?rite|rather|instead of"
    r"|please (?:use|answer|write|send)|in \w+ (?:style|format|units?)"
    r"|lieber|bevorzug\w+|mag|möchte|préfèr\w+|aime|plutôt|prefier\w+|gusta|предпоч\w+|любл\w+)\b"
    "|喜欢|喜歡|更愿意|偏好|最爱|好き|がいい",
    re.IGNORECASE,
)
_LABEL: Final = re.compile(
    r"^\W*(?:[A-Z][A-Z _-]{2,30}|(?:Rule|Fact|Goal|Constraint|Note|Decision|Preference|Important"
    r"|Remember|Todo|Deadline|Requirement|Wichtig|Regel|Règle|Regla|Nota)s?)\s*:"
)
_SPECIFIC: Final = re.compile(
    r"https?://\S+|\d{4}-\d\d-\d\d|[$€£¥]\s?\d[\d.,]*|\b\d[\d.,]*\s?(?:%|[A-Z]{3}\b|[a-zµ]{1,3}\b)"
    r"|\b[A-Z]{2,}[A-Z0-9]*-\d+\b|\b[\w.]+[/_][\w./_-]+|\b\w*\d\w*(?:[.-]\w+)*"
    r"|\b(?:[A-Z][a-z]+ ){1,3}[A-Z][a-z]+\b|\b[A-Z]{3,}\b"
)
_RECEIPT: Final = re.compile(
    r"^\W*(?:acknowledged|noted|ok(?:ay)?|sure|got it|understood|will do|recorded|thanks?|thank you"
    r"|verstanden|alles klar|gerne?|d['’]accord|entendido|понял\w*|хорошо)\b|^(?:好的|明白)",  # noqa: RUF001
    re.IGNORECASE,
)
_VALUE: Final = re.compile(r"[\w.,:/@$€£¥%+-]*\d[\w.,:/@$€£¥%+-]*")


def strength(text: str, role: Role) -> float:
    """Return how much *text* binds or informs; 0 for text that does neither."""
    said = _LABEL.sub("", text, count=1)
    found = _BINDS_WEIGHT * _num(_BINDS, said) + _SPECIFIC_WEIGHT * _num(_SPECIFIC, said)
    found += _STATE_WEIGHT * (_STATE.search(said) is not None)
    found += _PREFERENCE_WEIGHT * (_PREFERENCE.search(said) is not None)
    found += _LABEL_WEIGHT * (said is not text and said != text)
    if role is not Role.USER:
        found *= _ASSISTANT_SHARE
    if _RECEIPT.search(text):
        found *= _RECEIPT_SHARE
    if text.rstrip().endswith(("?", "？")):  # noqa: RUF001 - as it is typed
        found *= _QUESTION_SHARE
    return found


def priority(text: str, role: Role) -> float:
    """Return the strength of *text* for the room that it takes."""
    return strength(text, role) / math.pow(len(text) + _FRAME, _LENGTH_EXPONENT)


def subject_of(text: str) -> str:
    """Return *text* without its numbers, dates and amounts: the same in each version of it."""
    return " ".join(_VALUE.sub("#", text.casefold()).split())


def _num(pattern: re.Pattern[str], text: str) -> int:
    return min(_MAX_COUNTED, len({found.casefold() for found in pattern.findall(text)}))
