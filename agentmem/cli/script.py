"""The conversation that the demo plays, read from the package's data."""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from agentmem.types import Inherit, ToolCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The user says something; the agent may run tools before the model answers."""

    user: str
    calls: tuple[ToolCall, ...] = ()
    results: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegate:
    """A subtask, and the one fact that it hands back."""

    name: str
    inherit: Inherit
    steps: tuple[Ask, ...]
    promote: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restart:
    """The memory is closed and opened again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A session to play: its key, its pins, and what happens."""

    session: str
    pins: tuple[tuple[str, str], ...]
    steps: tuple[Ask | Delegate | Restart, ...]


def travel() -> Script:
    """Read the travel agent's conversation."""
    data = json.loads(files("agentmem.cli").joinpath("data/travel.json").read_text("utf-8"))
    return Script(
        session=data["session"],
        pins=tuple((pin["key"], pin["text"]) for pin in data["pins"]),
        steps=tuple(_step(step) for step in data["steps"]),
    )


def _step(step: dict[str, Any]) -> Ask | Delegate | Restart:
    if step["do"] == "restart":
        return Restart()
    if step["do"] == "subtask":
        return Delegate(
            name=step["name"],
            inherit=Inherit(step["inherit"]),
            steps=tuple(_ask(inner) for inner in step["steps"]),
            promote=step["promote"],
        )
    return _ask(step)


def _ask(step: dict[str, Any]) -> Ask:
    calls = step.get("calls", ())
    return Ask(
        user=step["user"],
        calls=tuple(
            ToolCall(
                id=call["id"],
                name=call["name"],
                arguments=json.dumps(call["arguments"], ensure_ascii=False),
            )
            for call in calls
        ),
        results=tuple(call["result"] for call in calls),
    )
