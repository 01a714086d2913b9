"""Each command that prints something prints it as JSON when it is asked to."""

import json

import pytest
import typer

from agentmem.cli.app import app
from agentmem.cli.chat import run_chat
from agentmem.cli.output import beside
from agentmem.config import Sampling
from agentmem.memory import Memory
from agentmem.store import head
from agentmem.testing import ScriptedModel


def commands(group, path=()):
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", sorted(COMMANDS), ids=" ".join)
def test_each_command_takes_json(name):
    options = {option for one in COMMANDS[name].params for option in one.opts}

    assert "--json" in options


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:///{tmp_path / 'm.db'}"
    with Memory.open(url, model=ScriptedModel()) as memory:
        for key in ("trip", "old"):
            session = memory.session(key)
            session.pin("role", "You are a travel agent.")
            session.reply("Hello.")
        with session.subtask("look") as task:
            task.append("user", "in the subtask")
    return url


@pytest.fixture
def printed(capsys, url):
    def run(*arguments):
        app([*arguments, "-d", url, "--json"], standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.slow
def test_one_value_is_printed_by_each_command_without_a_model(printed, tmp_path):
    file = str(tmp_path / "all.jsonl")
    lexical = ("--lexical",)
    runs = [
        ("users",),
        ("sessions",),
        ("show", "trip"),
        ("truncations", "trip"),
        ("check", "trip"),
        ("pins", "trip"),
        ("search", "trip", "hello", *lexical),
        ("index", "status", *lexical),
        ("index", "rebuild", *lexical),
        ("purge", "--older-than", "1d", "--log-older-than", "1d"),
        ("purge", "--older-than", "1d", "--dry-run"),
        ("purge", "--log-older-than", "1d", "--yes"),
    ]

    for one in runs:
        assert printed(*one) is not None

    assert printed("export", file) == {"sessions": 2, "messages": 5}
    assert printed("delete", "old", "--yes") == {"deleted": "session old with 2 messages"}
    assert printed("delete", "trip", "--yes")["deleted"]
    assert printed("import", file) == {"sessions": 2, "messages": 5}
    assert printed("head", "trip")["head"].startswith("sha256:")


def test_the_revision_and_its_moves_are_values(printed):
    newest = head()

    assert printed("db", "current") == {"revision": newest, "newest": newest}
    assert printed("db", "upgrade") == {"before": newest, "after": newest}
    assert printed("db", "downgrade", newest, "--yes") == {"before": newest, "after": newest}
    assert printed("db", "downgrade", "base", "--yes") == {"before": newest, "after": None}
    assert printed("db", "current") == {"revision": None, "newest": newest}


def test_a_question_is_not_asked_among_the_json(url, capsys, monkeypatch):
    monkeypatch.setattr("typer.confirm", lambda _text, *, abort, err: abort and err)

    app(["delete", "trip", "-d", url, "--json"], standalone_mode=False)

    assert json.loads(capsys.readouterr().out)["deleted"]


def test_a_chat_is_a_line_of_json_for_each_answer(url, capsys, monkeypatch):
    lines = iter(["Hello?", "/pins", "And now?"])
    monkeypatch.setattr("builtins.input", lambda *_: next(lines, "/quit"))

    with Memory.open(url, model=ScriptedModel()) as memory:
        session = memory.session("chat")
        run_chat(beside(as_json=True), session, {"k": "text"}, Sampling(), as_json=True)

    replies = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [reply["text"] for reply in replies] == [m.text for m in session_answers(url)]


def session_answers(url):
    with Memory.open(url) as memory:
        return [
            one.message for one in memory.find("chat").messages() if one.message.role == "assistant"
        ]
