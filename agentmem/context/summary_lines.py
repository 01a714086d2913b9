"""
The line format of summaries: position, date, speaker, text.

A line is ``[12, 2026-05-03] user: the text``, the same at every level, so that quotations in a
summary of summaries still have their speaker, and no text can imitate a line. Other lines are the
summarizer's prose, and are shown as such.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date, tzinfo
from typing import Final

from agentmem.context.standing_facts import label_apart
from agentmem.protocols import Passage
from agentmem.types import Origin, Role, StoredMessage, Summary
from agentmem.types.data_urls import without_data
from agentmem.types.moments import in_zone
from agentmem.types.sentences import OMITTED, split_sentences

_ROLES: Final = {
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool result": Role.TOOL,
    "subtask result": Role.ASSISTANT,
    "summary": Role.ASSISTANT,
}
_SPEAKER: Final = rf"(?:{'|'.join(_ROLES)})(?: \([^()\[\]:\n]+\))?"
_LINE: Final = re.compile(
    rf"\[(\d{{1,18}})(?:-(\d{{1,18}}))?(?:, (\d{{4}}-\d\d-\d\d))?\] ({_SPEAKER}): (.*)"
)
# The old format without positions: a role, or for a summary of summaries the system and others.
_OLD_LINE: Final = re.compile(r"(user|assistant|tool): (.*)")
_OLD_LABELS: Final = re.compile(r"(?:system: )+")
_OLD_AUTHOR: Final = "extractive"

# Beginnings of a text that could imitate a line, or another speaker.
_LIKE_A_LABEL: Final = re.compile(
    r"[^\w\"]*(?:system|developer|user|human|assistant|ai|bot|model|tool|function|ipython|subtask"
    r"|summary|instructions?|pins?)\b[^:\"]{0,60}[:\]>|]",
    re.IGNORECASE,
)
_NOT_IN_NAMES: Final = re.compile(r"[()\[\]:<>|]")
_MAX_NAME: Final = 40


def flatten(text: str) -> str:
    """Return *text* as one line: each run of white space, line ends included, becomes a space."""
    return " ".join(text.split())


def line_of(passage: Passage, text: str | None = None) -> str:
    """Format *passage*, or the excerpt *text* of it, as one line with its speaker."""
    said = flatten(passage.text if text is None else text)
    if said.startswith("[") or _LIKE_A_LABEL.match(said):
        said = f'"{said}"'
    return f"{label_of(passage)} {said}"


def label_of(passage: Passage) -> str:
    """Return position, date and speaker of *passage* as a line prefix."""
    place = str(passage.position)
    if passage.last is not None and passage.last != passage.position:
        place += f"-{passage.last}"
    day = "" if passage.day is None else f", {passage.day.isoformat()}"
    return f"[{place}{day}] {_speaker_of(passage)}:"


def passages_of_messages(
    messages: Iterable[StoredMessage], zone: tzinfo | None, names: dict[str, str]
) -> Iterator[Passage]:
    """
    Return the passages of non-blank *messages*.

    *names* are those of called tools, by call id. Without a *zone*, dates are in the time zone of
    the messages.
    """
    for stored in messages:
        if stored.origin in (Origin.DELETED, Origin.DAMAGED, Origin.SYNTHETIC):
            continue
        message = stored.message
        calls = "".join(
            f"(calls {call.name} {without_data(call.arguments)}) " for call in message.tool_calls
        )
        # The omission mark is reserved for summaries.
        text = (calls + message.memory_text).replace(OMITTED, "(...)")
        if text.strip():
            yield Passage(
                position=stored.position,
                role=message.role,
                text=text,
                day=(in_zone(stored.created_at, zone) if zone else stored.created_at).date(),
                speaker=_speaker(stored, names),
            )


def passages_of_summary(summary: Summary) -> Iterator[Passage]:
    """Parse the lines of *summary*: each with its speaker, prose with the summary's author."""
    prose: list[str] = []
    for line in summary.text.split("\n"):
        read = _read(line, summary)
        if read is None:
            prose.append(_OLD_LABELS.sub("", line, count=1) if _is_old(summary) else line)
            continue
        yield from _prose(prose, summary)
        prose = []
        yield read
    yield from _prose(prose, summary)


def shown_lines(summary: Summary) -> list[str]:
    """Format *summary* for a prompt."""
    return [line_of(passage) for passage in passages_of_summary(summary)]


def is_quotation(text: str, passages: Sequence[Passage]) -> bool:
    """Whether each line of *text* quotes one of *passages*."""
    said = _by_label(passages)
    return all(_is_quoted(line, said) for line in text.split("\n"))


def with_quotations_checked(text: str, passages: Sequence[Passage]) -> str:
    """
    Return a summarizer's text, in which lines that falsely read as quotations are marked as prose.

    A line with a position and a speaker is a quotation only if all of it is whole sentences of that
    message: part of a sentence may mean the opposite.
    """
    said = _by_label(passages)
    return "\n".join(
        line if _LINE.fullmatch(line) is None or _is_quoted(line, said) else _undone(line)
        for line in text.split("\n")
    )


def _by_label(passages: Sequence[Passage]) -> dict[str, list[str]]:
    said: dict[str, list[str]] = {}
    for passage in passages:
        for label in {label_of(passage), label_of(replace(passage, day=None))}:
            said.setdefault(label, []).append(passage.text)
    return said


def _is_quoted(line: str, said: dict[str, list[str]]) -> bool:
    for label, texts in said.items():
        if not line.startswith(f"{label} "):
            continue
        quoted = _solid(line[len(label) :])
        ways = [quoted]
        if len(quoted) > 1 and quoted[0] == quoted[-1] == '"':
            ways.append(quoted[1:-1])  # the quotation marks may be the line's
        for text in texts:
            sentences = [_solid(part) for one in split_sentences(text) for part in label_apart(one)]
            if any(_is_of_sentences(way, sentences) for way in ways):
                return True
    return False


def _is_of_sentences(quoted: str, sentences: Sequence[str]) -> bool:
    """Whether *quoted* is a subsequence of *sentences*, with a mark at each omission."""
    begins = {0}  # possible starts of the next sentence
    ends: set[int] = set()  # possible ends of the last sentence, where the next one may begin
    for sentence in sentences:
        if sentence == OMITTED:
            ends = set()
            continue
        found = {at for at in begins | ends if quoted.startswith(sentence, at)}
        ends = {at + len(sentence) for at in found}
        if len(quoted) in ends:
            return True
        begins |= {at + len(OMITTED) for at in ends if quoted.startswith(OMITTED, at)}
    return False


def _solid(text: str) -> str:
    return "".join(text.split())


def _undone(line: str) -> str:
    return line.replace("[", "(", 1).replace("]", ")", 1)


def _read(line: str, summary: Summary) -> Passage | None:
    if (found := _LINE.fullmatch(line)) is not None:
        first, last, day, speaker, text = found.groups()
        return Passage(
            position=int(first),
            role=_ROLES[speaker.partition(" (")[0]],
            text=text,
            last=None if last is None else int(last),
            day=_day(day),
            speaker=speaker,
        )
    if _is_old(summary) and (found := _OLD_LINE.fullmatch(line)) is not None:
        role = Role(found[1])
        return Passage(position=summary.first, role=role, text=found[2], last=summary.last)
    return None


def _is_old(summary: Summary) -> bool:
    return summary.author.startswith(_OLD_AUTHOR) and not summary.text.startswith("[")


def _prose(lines: Sequence[str], summary: Summary) -> Iterator[Passage]:
    text = "\n".join(lines).strip()
    if not text:
        return
    writer = _plain_name(summary.author.rpartition("/")[2])
    yield Passage(
        position=summary.first,
        role=Role.ASSISTANT,
        text=text,
        last=summary.last,
        speaker=f"summary ({writer})" if writer else "summary",
    )


def _speaker_of(passage: Passage) -> str:
    if re.fullmatch(_SPEAKER, passage.speaker):
        return passage.speaker
    return "tool result" if passage.role is Role.TOOL else _only_known(passage.role)


def _only_known(role: Role) -> str:
    # A transcript has no system messages, so that a system line would be a false speaker.
    return "summary" if role is Role.SYSTEM else str(role)


def _speaker(stored: StoredMessage, names: dict[str, str]) -> str:
    message = stored.message
    name = message.name
    if message.role is Role.TOOL:
        kind = "tool result"
        name = name or names.get(message.tool_call_id or "")
    elif stored.origin is Origin.PROMOTED:
        kind = "subtask result"
    else:
        kind = str(message.role)
    plain = _plain_name(name or "")
    return f"{kind} ({plain})" if plain else kind


def _plain_name(name: str) -> str:
    return flatten(_NOT_IN_NAMES.sub(" ", name))[:_MAX_NAME].strip()


def _day(text: str | None) -> date | None:
    if text is not None:
        with suppress(ValueError):
            return date.fromisoformat(text)
    return None
