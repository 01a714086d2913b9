"""What was said elsewhere keeps its date, and dates are those of the user's own clock."""

import asyncio
from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from agentmem import Budget, Memory, ToolCall
from agentmem.errors import InvalidInputError
from agentmem.retrieval import HybridRetriever
from agentmem.store import Store, downgrade, upgrade
from agentmem.testing import WordCounter
from agentmem.types import Scope
from tests.builders import say
from tests.store.conftest import (  # noqa: F401 - fixtures
    new_postgres_url,
    new_url,
    postgres,
    postgres_url,
    url,
)
from tests.store.invariants import check

THEN = datetime(2023, 5, 2, 23, 30, 15, 123456, tzinfo=UTC)


@pytest.fixture
def memory(url):  # noqa: F811 - a fixture
    with Memory.open(url, counter=WordCounter(), retriever=HybridRetriever()) as opened:
        yield opened
        check(opened._store)


@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=5, minutes=45))])
def test_a_message_keeps_the_date_that_it_was_said_on(memory, zone):
    session = memory.session("s")
    now = session.append("user", "now")
    then = session.append("user", "then", created_at=THEN.astimezone(zone))

    read = session.messages()

    assert read == (now, then)
    assert (then.created_at, then.created_at.utcoffset()) == (THEN, timedelta(0))
    assert then.position == 2
    assert abs(then.stored_at - datetime.now(UTC)) < timedelta(minutes=5)
    assert now.stored_at is None


@pytest.mark.parametrize("role", ["user", "assistant", "call", "tool", "keyed"])
@pytest.mark.parametrize("where", ["session", "subtask", "coroutine"])
def test_every_way_to_append_takes_a_date(memory, role, where):
    line = memory.session("s")
    if where == "subtask":
        line.append("user", "hello")
        line = line.subtask("t")

    def append(*args, **fields):
        if where == "coroutine":
            return asyncio.run(line.aappend(*args, **fields, created_at=THEN))
        return line.append(*args, **fields, created_at=THEN)

    match role:
        case "call":
            stored = append("assistant", tool_calls=[ToolCall(id="c", name="f")])
        case "tool":
            stored = append("tool", "found", tool_call_id="c")
        case "keyed":
            append("user", "x", client_key="k")
            stored = append("user", "x", client_key="k")
        case _:
            stored = append(role, "x")

    assert stored.created_at == THEN
    assert line.messages()[-1] == stored


@pytest.mark.parametrize(
    "wrong",
    [datetime(2023, 5, 2), "2023-05-02", date(2023, 5, 2), 1683000000, datetime.min],  # noqa: DTZ001, DTZ901
)
def test_a_date_that_is_no_moment_is_refused_and_nothing_is_stored(memory, wrong):
    session = memory.session("s")

    with pytest.raises(InvalidInputError):
        session.append("user", "x", created_at=wrong)

    assert session.branch.head == 0


def test_a_session_with_old_messages_is_as_fresh_as_its_last_append(memory):
    session = memory.session("s")
    session.append("user", "x", created_at=THEN)
    session.append("assistant", tool_calls=[ToolCall(id="c", name="f")], created_at=THEN)

    assert memory.purge(timedelta(days=30)) == ()
    assert memory.find("s").messages()[0].created_at == THEN


def test_a_branch_as_it_was_holds_what_was_stored_by_then(memory):
    session = memory.session("s")
    session.pin("a", "one")
    first = session.append("user", "x", created_at=THEN)
    session.pin("a", "two")
    session.append("user", "y", created_at=THEN - timedelta(days=1))

    assert [pin.text for pin in session.at(1).pins()] == ["one"]
    assert [pin.text for pin in session.at(2).pins()] == ["two"]
    assert session.at(first.stored_at).head == 1
    assert session.at(THEN + timedelta(days=1)).head == 0


def test_the_date_is_searched_by_and_shown(memory):
    session = memory.session("s")
    session.append("user", "The boiler was mended.", created_at=THEN)
    session.append("assistant", "Good.", created_at=THEN)
    for number in range(40):
        session.append("user", f"The boiler hums tune {number} again.")
        session.append("assistant", f"I hear tune {number}.")

    found = session.search("the boiler on 2 May 2023")
    prompt = session.assemble(
        query="the boiler on 2 May 2023", budget=Budget(context=200, reply=20)
    )

    assert {hit.stored.position for hit in found[:2]} == {1, 2}
    assert "2 May 2023" in prompt.text


def test_the_date_survives_an_export(memory, tmp_path):
    session = memory.session("s", user="u")
    session.append("user", "x", created_at=THEN)
    memory.export(tmp_path / "e.jsonl", user="u")

    memory.load(tmp_path / "e.jsonl", user="v")

    copy = memory.find("s", user="v").messages()[0]
    assert (copy.created_at, copy.stored_at) == (THEN, session.messages()[0].stored_at)


def test_a_database_of_before_takes_dates_after_an_upgrade(new_url):  # noqa: F811 - a fixture
    scope = Scope()
    with Store.open(new_url) as store:
        main = store.sessions.get_or_create(scope, "s").main
        before = store.messages.append(scope, main, [say("user", "old")])
    downgrade(new_url, "0004")
    upgrade(new_url)
    with Store.open(new_url) as store:
        store.messages.append(scope, main, [say("user", "x")], created_at=THEN)
        read = store.messages.read(scope, main)

        assert read[:1] == before
        assert read[1].created_at == THEN
