"""
A database and an export of version 0.1: opened, moved on, and moved back.

`tests/data/v0_1/make.py` says what they hold and made them with that version.
"""

import gzip
import json
import sqlite3
from pathlib import Path

import pytest

from agentmem import Memory
from agentmem.config import Budget
from agentmem.errors import SchemaVersionError
from agentmem.store import downgrade, head, upgrade
from agentmem.testing import WordCounter
from agentmem.types import BranchState, ImagePart

DATA = Path(__file__).parents[1] / "data" / "v0_1"
REVISION = "0003"
BUDGETS = (Budget(context=300, reply=40, summary=0.4, retrieved=0.2), Budget(context=500, reply=40))


def unpacked(name):
    return gzip.decompress((DATA / f"{name}.gz").read_bytes()).decode()


EXPECTED = json.loads(unpacked("expected.json"))


@pytest.fixture
def old_url(tmp_path):
    """The database as version 0.1 left it."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path)
    connection.executescript(unpacked("database.sql"))
    connection.close()
    return f"sqlite:///{path}"


@pytest.fixture
def export(tmp_path):
    path = tmp_path / "export.jsonl"
    path.write_text(unpacked("export.jsonl"), newline="")
    return path


def histories(url):
    """Each branch that version 0.1 told of: what it expects, its session and its history."""
    for namespace in ("default", "tenant"):
        with Memory.open(url, counter=WordCounter(), namespace=namespace) as memory:
            for told in EXPECTED:
                place, user, key, name = told["place"]
                if place == namespace:
                    session = memory.find(key, user=user)
                    (branch,) = (one for one in session.branches() if one.name == name)
                    yield told, session, session.history(branch.id)


def as_told(stored):
    message = stored.message
    return {
        "role": message.role,
        "origin": stored.origin,
        "parts": [[type(part).__name__, *_words(part)] for part in message.parts],
        "calls": [[call.id, call.name, call.arguments] for call in message.tool_calls],
        "answers": message.tool_call_id,
        "name": message.name,
        "generated": list(message.generated.token_ids) if message.generated else None,
    }


def _words(part):
    # What is shown in place of an image is the newer version's to say.
    names = ("url", "alt") if isinstance(part, ImagePart) else ("text",)
    return [getattr(part, name) for name in names]


def in_words(messages):
    """What version 0.1 told of messages, without the text that it showed in place of an image."""
    return [
        one | {"parts": [[p[0], *p[-2:]] if p[0] == "ImagePart" else p for p in one["parts"]]}
        for one in messages
    ]


def assert_all_is_there(url):
    seen = 0
    for told, _, history in histories(url):
        assert [as_told(one) for one in history.messages()] == in_words(told["messages"])
        assert [[p.key, p.version, p.text] for p in history.pins()] == told["pins"]
        assert sorted(s.text for s in history.summaries()) == sorted(told["summaries"])
        assert len(history.truncations()) == told["num_truncations"]
        assert history.branch.state == told["state"]
        assert history.check() == ()
        seen += 1
    assert seen == len(EXPECTED) > 20


def go_on(url):
    """Assemble each branch that is still open, say something more, and assemble again."""
    for _, session, history in histories(url):
        if history.branch.state is not BranchState.OPEN:
            continue
        is_main = history.branch.parent is None
        branch = session if is_main else session.resume_subtask(history.branch.id)
        if branch.messages():  # pins alone are no prompt
            for budget in BUDGETS:
                branch.assemble(budget=budget)
        branch.append("user", "and now?")
        for budget in BUDGETS:
            branch.assemble(budget=budget)
        assert history.check() == ()


@pytest.mark.slow
def test_a_database_of_the_version_before_is_moved_on_with_all_that_it_says(old_url):
    assert upgrade(old_url) == head()

    assert_all_is_there(old_url)
    go_on(old_url)


def test_a_database_of_the_version_before_is_never_opened_as_if_it_were_new(old_url):
    if head() == REVISION:
        assert_all_is_there(old_url)
        return

    with pytest.raises(SchemaVersionError, match="db upgrade"):
        Memory.open(old_url)


def rows(url, *tables):
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    select = 'SELECT * FROM "{}"'
    found = {name: connection.execute(select.format(name)).fetchall() for name in tables}
    connection.close()
    return found


def test_a_database_moved_on_and_back_is_the_one_before(old_url):
    tables = [name for name in _tables(old_url) if not name.startswith("sqlite_")]
    before = rows(old_url, *tables)

    upgrade(old_url)
    assert downgrade(old_url, REVISION) == REVISION

    assert [name for name in _tables(old_url) if not name.startswith("sqlite_")] == tables
    assert rows(old_url, *tables) == before


@pytest.mark.slow
def test_what_was_said_since_survives_the_way_back(old_url):
    upgrade(old_url)
    go_on(old_url)
    downgrade(old_url, REVISION)
    upgrade(old_url)

    for told, _, history in histories(old_url):
        said = [as_told(one) for one in history.messages()]
        assert said[: len(told["messages"])] == in_words(told["messages"])
        assert history.check() == ()


def _tables(url):
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    names = [name for (name,) in found]
    connection.close()
    return names


@pytest.mark.slow
def test_an_export_of_the_version_before_is_loaded_whole(url, export):
    """It has two namespaces, and each memory takes the sessions of its own."""
    for namespace in ("default", "tenant"):
        keys = {tuple(told["place"][:3]) for told in EXPECTED if told["place"][0] == namespace}
        with Memory.open(url, counter=WordCounter(), namespace=namespace) as memory:
            assert memory.load(export).sessions == len(keys) > 0
    if url == "sqlite://":
        return  # another memory at this URL is another database

    assert_all_is_there(url)
    go_on(url)
