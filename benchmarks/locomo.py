"""Reads conversations in LoCoMo's format, and the turns that answer questions about them."""

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from talks import Question, Talk, stored_message

from agentmem.types import (
    ImagePart,
    Message,
    Part,
    Role,
    StoredMessage,
    TextPart,
)

_KINDS = {1: "multi-hop", 2: "temporal", 3: "open", 4: "single-hop"}
"""By category; category 5 asks what was never said."""


def read_talks(path: Path, *, named: bool = True) -> list[Talk]:
    """
    Read the conversations of a file.

    The first speaker is the user, the second the assistant. A turn of a day is said half a minute
    after the one before. Evidence that names no turn is skipped, and so is a question without any.

    Args:
        path: the file.
        named: whether messages bear the names of their speakers.
    """
    return [_talk(entry, str(number), named=named) for number, entry in enumerate(_load(path))]


def as_self(talk: Talk) -> Talk:
    """Let the first speaker ask: that one's name becomes ``I``, the other one's ``you``."""
    questions = []
    for question in talk.questions:
        text = question.text
        for name, (subject, owner) in zip(
            talk.speakers, (("I", "my"), ("you", "your")), strict=True
        ):
            text = re.sub(rf"\b{re.escape(name)}['’]s\b", owner, text)  # noqa: RUF001
            text = re.sub(rf"\b{re.escape(name)}\b", subject, text)
        questions.append(replace(question, text=text))
    return replace(talk, questions=tuple(questions))


def _load(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())
    return found if isinstance(found, list) else [found]


def _talk(entry: dict[str, Any], name: str, *, named: bool) -> Talk:
    talk: dict[str, Any] = entry["conversation"]
    turns = _turns(talk)
    first = talk["speaker_a"]
    messages = [
        _stored(turn, at, position, is_user=turn["speaker"] == first, named=named)
        for position, (turn, at) in enumerate(turns, start=1)
    ]
    positions = {turn["dia_id"]: position for position, (turn, _) in enumerate(turns, start=1)}
    return Talk(
        name=str(entry.get("sample_id", name)),
        speakers=(talk["speaker_a"], talk["speaker_b"]),
        messages=tuple(messages),
        questions=tuple(_questions(entry.get("qa", ()), positions)),
    )


def _turns(talk: dict[str, Any]) -> list[tuple[dict[str, Any], datetime]]:
    days = sorted(
        (key for key in talk if re.fullmatch(r"session_\d+", key) and isinstance(talk[key], list)),
        key=lambda key: int(key.split("_")[1]),
    )
    turns = []
    begun = datetime(2023, 1, 1, 12, tzinfo=UTC)
    for day in days:
        # A day without a date is taken for the next one.
        named = talk.get(f"{day}_date_time")
        begun = _time(named) if named else begun + timedelta(days=1)
        said = [turn for turn in talk[day] if turn.get("text") or turn.get("blip_caption")]
        for number, turn in enumerate(said):
            turns.append((turn, begun + timedelta(seconds=30 * number)))
    return turns


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)


def _stored(
    turn: dict[str, Any], at: datetime, position: int, *, is_user: bool, named: bool
) -> StoredMessage:
    parts: list[Part] = [TextPart(text=turn["text"])] if turn.get("text") else []
    if caption := turn.get("blip_caption"):
        parts.append(ImagePart(url="file:image", alt=caption))
    message = Message(
        role=Role.USER if is_user else Role.ASSISTANT,
        parts=tuple(parts),
        name=turn["speaker"] if named else None,
    )
    return stored_message(position, message, at)


def _questions(asked: Sequence[dict[str, Any]], positions: dict[str, int]) -> list[Question]:
    found = []
    for one in asked:
        named = re.findall(r"D\d+:\d+", " ".join(map(str, one.get("evidence") or ())))
        evidence = frozenset(positions[turn] for turn in named if turn in positions)
        if (kind := _KINDS.get(one["category"])) and evidence:
            text, until = one["question"], len(positions)
            answer = str(one.get("answer", ""))
            found.append(
                Question(text=text, kind=kind, evidence=evidence, until=until, answer=answer)
            )
    return found
