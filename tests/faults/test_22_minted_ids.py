"""Calls that came without an id, or with the same one twice, are told apart from then on."""

import hashlib
import json
import re

import pytest

from agentmem import Memory, Message, TextPart, ToolCall, TranscriptError
from agentmem.errors import DamagedFileError
from agentmem.testing import WordCounter
from tests.inference.kinds import KINDS, kind_counter
from tests.store.conftest import postgres, postgres_url  # noqa: F401 - fixtures


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request, tmp_path):
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
    with Memory.open(url, counter=WordCounter()) as opened:
        yield opened


def call(name="f", call_id="", arguments="{}"):
    return ToolCall(id=call_id, name=name, arguments=arguments)


def ids_of(stored):
    return [made.id for made in stored.message.tool_calls]


def ask(session, *calls, **options):
    session.append("user", "go")
    return session.append("assistant", tool_calls=calls, **options)


@pytest.mark.parametrize("missing", [None, ""])
def test_a_call_without_an_id_is_given_one_that_every_provider_takes(memory, missing):
    session = memory.session("s")
    stored = ask(session, ToolCall(id=missing, name="f"), ToolCall(name="f"), call("g", "own"))
    ids = ids_of(stored)
    assert ids[2] == "own"
    assert len(set(ids)) == 3
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", one) for one in ids)
    for one in ids:
        session.append("tool", f"result of {one}", tool_call_id=one)
    assert [s.message.tool_call_id for s in session.messages(3)] == ids
    assert session.check() == ()


def test_ids_of_later_messages_are_others(memory):
    session = memory.session("s")
    found = set()
    for _ in range(5):
        found.update(ids_of(ask(session, call(), call())))
        session.append("assistant", "well")
    assert len(found) == 10


def test_an_id_that_came_twice_is_kept_once_and_both_results_find_their_calls(memory):
    session = memory.session("s")
    ids = ids_of(ask(session, call("f", "c1"), call("g", "c1"), call("h", "c1_again2")))
    assert ids[0] == "c1"
    assert len(set(ids)) == 3
    for number in range(2):
        session.append("tool", f"found {number}", tool_call_id="c1")
    session.append("tool", "found 2", tool_call_id="c1_again2")
    results = [s.message for s in session.messages(3)]
    assert {r.tool_call_id for r in results} == set(ids)
    assert results[0].tool_call_id == "c1"
    assert results[2].tool_call_id == "c1_again2"
    assert session.assemble().num_tokens > 0


@pytest.mark.parametrize("missing", [None, ""])
def test_a_result_without_an_id_answers_the_only_open_call(memory, missing):
    session = memory.session("s")
    ids = ids_of(ask(session, call("f"), call("g")))
    session.append("tool", "of g", tool_call_id=missing, name="g")
    session.append("tool", "of f", tool_call_id=missing)
    assert [s.message.tool_call_id for s in session.messages(3)] == [ids[1], ids[0]]


def test_a_result_that_may_answer_several_calls_is_refused_in_words(memory):
    session = memory.session("s")
    ids = ids_of(ask(session, call("f"), call("f", arguments='{"a": 1}')))
    with pytest.raises(TranscriptError, match=r"2 calls wait for one: say which of 'call_"):
        session.append("tool", "?")
    with pytest.raises(TranscriptError, match="2 calls of 'f' wait"):
        session.append("tool", "?", name="f")
    with pytest.raises(TranscriptError, match="no call of 'other' waits"):
        session.append("tool", "?", name="other")
    assert len(session.messages()) == 2
    session.append("tool", "this", tool_call_id=ids[1])
    session.append("tool", "that")
    with pytest.raises(TranscriptError, match="no call waits"):
        session.append("tool", "?")


def test_a_retry_gives_the_ids_of_the_first_time(memory):
    session = memory.session("s")
    first = ask(session, call("f"), call("f"), client_key="k")
    again = session.append("assistant", tool_calls=[call("f"), call("f")], client_key="k")
    assert ids_of(again) == ids_of(first)
    result = session.append("tool", "x", tool_call_id=ids_of(first)[0])
    assert session.append("tool", "y", client_key="r").message.tool_call_id == ids_of(first)[1]
    assert session.append("tool", "y", client_key="r").position == result.position + 1


def test_a_subtask_answers_a_call_of_its_own(memory):
    session = memory.session("s")
    session.append("user", "go")
    with session.subtask("look") as subtask:
        ids = ids_of(ask(subtask, call("f")))
        assert subtask.append("tool", "x").message.tool_call_id == ids[0]
        subtask.promote("done")
    assert session.messages()[-1].message.text == "done"


@pytest.mark.parametrize("kind", KINDS)
def test_templates_show_them_like_any_other(kind):
    with Memory.open("sqlite://", counter=kind_counter(kind)) as memory:
        session = memory.session("s")
        ask(session, call("first_tool", "x"), call("second_tool", "x"))
        session.append("tool", "gold", tool_call_id="x")
        session.append("tool", "silver", tool_call_id="x")
        text = session.assemble().text
        places = [text.index(word) for word in ("first_tool", "second_tool", "gold", "silver")]
        assert places == sorted(places)


def test_an_id_belongs_to_a_tool_message_alone():
    with pytest.raises(ValueError, match="only a tool message has the tool_call_id"):
        Message(role="user", parts=(TextPart(text="x"),), tool_call_id="c1")


def test_a_file_without_ids_is_damaged(tmp_path):
    path = tmp_path / "all.jsonl"
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        session = memory.session("s")
        ask(session, call("f", "c1"))
        session.append("tool", "x", tool_call_id="c1")
        memory.export(path)
    text = path.read_text().replace('"tool_call_id":"c1"', '"tool_call_id":null')
    rewrite(path, text)
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        with pytest.raises(DamagedFileError, match="ids of calls are missing"):
            memory.load(path)
        assert memory.sessions() == ()


def rewrite(path, text):
    """Write an export with other lines, under an end that fits them."""
    lines = text.splitlines(keepends=True)[:-1]
    digest = hashlib.sha256("".join(lines).encode()).hexdigest()
    end = {"end": {"lines": len(lines), "sha256": digest}}
    path.write_text("".join(lines) + json.dumps(end) + "\n")
