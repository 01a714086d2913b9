"""
Sessions of agents that work with a tool, and what is asked about them afterwards.

Twenty subjects are in `data/tool_sessions.json`: what is asked for, how a result looks, what the
user demands once, what the assistant decides once. A session has 96 rounds over sixteen days: a
request, a call, its result of 8 to 14 rows, a short report. Three questions follow: about the
user's demand, about the assistant's decision, and about a row of a result that no report mentions.
"""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from talks import Question, Talk, stored_message

from agentmem.types import (
    Message,
    Role,
    StoredMessage,
    TextPart,
    ToolCall,
)

_FILE: Final = Path(__file__).parent / "data" / "tool_sessions.json"
_ROUNDS: Final = 96
_ROUNDS_A_DAY: Final = 6
_BEGAN: Final = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)


def tool_talks() -> list[Talk]:
    """Return the sessions, always the same."""
    return [
        _Session(one, number).talk() for number, one in enumerate(json.loads(_FILE.read_text()))
    ]


class _Session:
    """One session of an agent."""

    def __init__(self, subject: Mapping[str, Any], number: int) -> None:
        self._subject = subject
        self._random = random.Random(number)
        self._keys = self._random.sample(range(1000, 10_000), 14 * _ROUNDS)
        self._messages: list[StoredMessage] = []
        self._at = _BEGAN

    def talk(self) -> Talk:
        """Play it."""
        demanded, decided, shown = self._random.sample(range(2, _ROUNDS - 4), 3)
        evidence: dict[str, int] = {}
        asked = ""
        for number in range(_ROUNDS):
            if number % _ROUNDS_A_DAY == 0:
                self._at = _BEGAN + timedelta(days=number // _ROUNDS_A_DAY)
            rows = [self._row() for _ in range(self._random.randrange(8, 15))]
            hidden, told = self._random.sample(rows, 2)
            request = self._random.choice(self._subject["asks"]).format(*told)
            if number == demanded:
                request += " " + self._subject["user"][0]
                evidence["user"] = len(self._messages) + 1
            self._say(Role.USER, request)
            result = self._result(rows)
            if number == shown:
                evidence["tool"] = result
                asked = self._subject["tool_asks"].format(*hidden)
                answer = hidden[self._subject["answer"]]
            report = self._random.choice(self._subject["reports"]).format(*told)
            if number == decided:
                report += " " + self._subject["assistant"][0]
                evidence["assistant"] = len(self._messages) + 1
            self._say(Role.ASSISTANT, report)
        said = self._subject["user"], self._subject["assistant"], (answer, asked)
        return Talk(
            name=self._subject["name"],
            speakers=("user", "assistant"),
            messages=tuple(self._messages),
            questions=tuple(self._questions(said, evidence)),
        )

    def _questions(
        self, said: Sequence[Sequence[str]], evidence: Mapping[str, int]
    ) -> Iterator[Question]:
        for kind, (answer, text) in zip(("user", "assistant", "tool"), said, strict=True):
            yield Question(
                text=text,
                kind=kind,
                evidence=frozenset({evidence[kind]}),
                until=len(self._messages),
                answer=answer,
            )

    def _row(self) -> list[str]:
        name = self._subject["columns"][0]
        return [f"{name[:2].upper()}-{self._keys.pop()}", *map(self._cell, self._subject["values"])]

    def _cell(self, values: str | Sequence[str]) -> str:
        number = self._random.randrange(1, 200)
        plain = {
            "clock": f"{6 + number % 16:02}:{number % 4 * 15:02}",
            "euros": f"{7 * number} EUR",
            "seconds": f"{number / 10:.1f} s",
            "count": f"{number}",
        }
        return plain[values] if isinstance(values, str) else self._random.choice(values)

    def _result(self, rows: Sequence[Sequence[str]]) -> int:
        """Call the tool, and return the position of its result."""
        call_id = f"call_{len(self._messages)}"
        arguments = json.dumps({"query": rows[0][1]})
        call = ToolCall(id=call_id, name=self._subject["tool"], arguments=arguments)
        self._add(Message(role=Role.ASSISTANT, parts=(), tool_calls=(call,)))
        found = [dict(zip(self._subject["columns"], row, strict=True)) for row in rows]
        text = "\n".join(json.dumps(one) for one in found)
        parts = (TextPart(text=text),)
        self._add(Message(role=Role.TOOL, parts=parts, tool_call_id=call_id, name=call.name))
        return len(self._messages)

    def _say(self, role: Role, text: str) -> None:
        self._add(Message(role=role, parts=(TextPart(text=text),)))

    def _add(self, message: Message) -> None:
        position = len(self._messages) + 1
        self._at += timedelta(seconds=40)
        self._messages.append(stored_message(position, message, self._at))
