"""
Talks in Chinese, and fifty questions about them, written for this project.

What a user tells an assistant about relatives, work and a journey is one talk of ninety short
turns; two dialogues of named people have forty turns each.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from talks import Question, Talk, stored_message

from agentmem.types import (
    Message,
    Role,
    StoredMessage,
    TextPart,
)

_FILE: Final = Path(__file__).parent / "data" / "chinese_talks.json"
_BEGAN: Final = datetime(2026, 5, 11, 9, 0, tzinfo=UTC)
_STEP: Final = timedelta(minutes=7)


def chinese_talks() -> list[Talk]:
    """Return the talks."""
    made = json.loads(_FILE.read_text("utf-8"))
    daily = [one for one in made if one["speakers"][0] == "user"]
    return [_talk("daily", daily), *(_talk(one["name"], [one]) for one in made if one not in daily)]


def _talk(name: str, parts: list[dict[str, Any]]) -> Talk:
    messages: list[StoredMessage] = []
    asked: list[tuple[str, frozenset[int]]] = []
    for part in parts:
        begin = len(messages)
        for who, text in part["turns"]:
            messages.append(_message(len(messages) + 1, who, text, part["speakers"][0]))
        asked += [
            (text, frozenset(begin + place for place in places))
            for text, places in part["questions"]
        ]
    kind = "daily" if name == "daily" else "dialogue"
    questions = tuple(
        Question(text=text, kind=kind, evidence=evidence, until=len(messages))
        for text, evidence in asked
    )
    first, second = parts[0]["speakers"]
    return Talk(name=name, speakers=(first, second), messages=tuple(messages), questions=questions)


def _message(position: int, who: str, text: str, first: str) -> StoredMessage:
    is_named = who not in ("user", "assistant")
    message = Message(
        role=Role.USER if who == first else Role.ASSISTANT,
        parts=(TextPart(text=text),),
        name=who if is_named else None,
    )
    return stored_message(position, message, _BEGAN + position * _STEP)
