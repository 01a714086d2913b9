"""
Reads the projects of users with an assistant, in the form that RealMem is converted to.

A list of ``{id, speakers, turns: [{id, session, role, text, time}], questions: [{question,
category, evidence, asked_at, asked_after}]}``. A question is the user's next turn: what stands
before its own session may be searched, and evidence in that session, which is in the window, is
left out. Each session is a sitting.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from talks import Question, Talk, stored_message

from agentmem.types import (
    Message,
    Role,
    StoredMessage,
    TextPart,
)

_APART = timedelta(hours=2)
_STEP = timedelta(seconds=30)


def is_realmem(path: Path) -> bool:
    """Whether the file has users with turns, and not conversations in LoCoMo's format."""
    found = json.loads(path.read_text())
    return isinstance(found, list) and all("turns" in entry for entry in found)


def read_users(path: Path) -> list[Talk]:
    """Read the users of a file."""
    return [_talk(entry) for entry in json.loads(path.read_text())]


def _talk(entry: dict[str, Any]) -> Talk:
    said = [turn for turn in entry["turns"] if turn["text"].strip()]
    positions = {turn["id"]: position for position, turn in enumerate(said, start=1)}
    begins: dict[int, int] = {}
    for turn in said:
        begins.setdefault(turn["session"], positions[turn["id"]])
    questions = []
    for one in entry["questions"]:
        session = int(one["asked_at"].split(":")[0].removeprefix("S"))
        asked = positions.get(one["asked_at"]) or positions[one["asked_after"]] + 1
        until = min(asked, begins.get(session, asked)) - 1
        evidence = frozenset(positions[turn] for turn in one["evidence"] if turn in positions)
        if shown := frozenset(place for place in evidence if place <= until):
            kind = one["category"]
            answer = " ".join(map(str, one.get("memories") or [one.get("answer", "")]))
            text = one["question"]
            found = Question(text=text, kind=kind, evidence=shown, until=until, answer=answer)
            questions.append(found)
    return Talk(
        name=entry["id"],
        speakers=tuple(entry["speakers"]),
        messages=tuple(_messages(said)),
        questions=tuple(sorted(questions, key=lambda question: question.until)),
    )


def _messages(said: list[dict[str, Any]]) -> list[StoredMessage]:
    messages: list[StoredMessage] = []
    session, at = None, datetime.min.replace(tzinfo=UTC)
    for position, turn in enumerate(said, start=1):
        begun = datetime.fromisoformat(turn["time"]).replace(tzinfo=UTC)
        is_next = turn["session"] != session
        at = max(begun, at + _APART) if messages and is_next else at + _STEP if messages else begun
        session = turn["session"]
        message = Message(role=Role(turn["role"]), parts=(TextPart(text=turn["text"]),))
        messages.append(stored_message(position, message, at))
    return messages
