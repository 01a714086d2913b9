"""What a provider wants back with a call, a thought or a message comes back as it was given."""

import json
import sqlite3

import pytest

from agentmem import (
    ConflictError,
    InvalidInputError,
    Memory,
    Message,
    ReasoningPart,
    Role,
    TextPart,
    ToolCall,
)
from agentmem.retrieval import HybridRetriever
from agentmem.testing import WordCounter
from tests.inference.kinds import kind_counter
from tests.store.conftest import postgres, postgres_url  # noqa: F401 - fixtures

SIGNATURE = {
    "zeta": "Ev0BCkYIBxgCKkD\u0000\ud83c\u2028é",
    "alpha": [1, 1.1, 1e300, -0.0, True, None, 123456789012345678901234567890, {"": {}}],
    "text": '<|im_end|> "quoted" \\ulike \ue000',
}
VALUES = (
    *(SIGNATURE, "plain \ud83c text", "", [], {}, 0, False, 1.5, ["a", {"b": None}]),
    "x" * 99_999,
)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'agent.db'}"
    return request.getfixturevalue("postgres_url")


def exact(value):
    """As JSON in the order of its keys, which tells 0 from False and -0.0 from 0.0."""
    return json.dumps(value)


def tell(session, extra):
    session.append("user", "What is in the vault?", extra=extra)
    thought = ReasoningPart(text="I must look.", extra=extra)
    call = ToolCall(id="c1", name="look", arguments='{"q": 1.10}', extra=extra)
    session.append("assistant", [thought, TextPart(text="ok")], tool_calls=[call], extra=extra)
    session.append("tool", "gold", tool_call_id="c1", extra=extra)


def told(session):
    """Return the four values that `tell` has given, and those of messages without."""
    asked, answered, found = (stored.message for stored in session.messages(1, 3))
    return [
        *(asked.extra, answered.parts[0].extra, answered.tool_calls[0].extra, answered.extra),
        found.extra,
    ]


@pytest.mark.parametrize("extra", VALUES, ids=lambda value: repr(value)[:20])
def test_it_comes_back_as_it_was_given(url, extra):
    with Memory.open(url, counter=WordCounter()) as memory:
        tell(memory.session("s"), extra)
    with Memory.open(url, counter=WordCounter()) as memory:
        session = memory.session("s")
        assert [exact(value) for value in told(session)] == [exact(extra)] * 5
        # And with the prompt, for clients that send messages and not text.
        shown = [m for m in session.assemble().messages if m.role is Role.ASSISTANT]
        assert exact(shown[0].tool_calls[0].extra) == exact(extra)


def test_it_is_exported_and_imported(url, tmp_path):
    with Memory.open(url, counter=WordCounter()) as memory:
        tell(memory.session("s"), SIGNATURE)
        memory.export(tmp_path / "all.jsonl")
        memory.delete("s")
        memory.load(tmp_path / "all.jsonl")
        assert [exact(value) for value in told(memory.session("s"))] == [exact(SIGNATURE)] * 5


@pytest.mark.parametrize("counter", [WordCounter, lambda: kind_counter("qwen3")])
def test_no_model_reads_it_and_no_search_finds_it(counter):
    prompts = []
    for extra in (None, {"secret": "zanzibar"}):
        with Memory.open("sqlite://", counter=counter(), retriever=HybridRetriever()) as memory:
            session = memory.session("s")
            tell(session, extra)
            memory.wait_for_index()
            prompts.append(session.assemble().token_ids)
            assert not session.search("zanzibar")
    assert prompts[0] == prompts[1]


def test_it_is_deleted_with_its_message(tmp_path):
    path = tmp_path / "agent.db"
    with Memory.open(f"sqlite:///{path}", counter=WordCounter()) as memory:
        session = memory.session("s")
        tell(session, {"secret": "zanzibar"})
        for position in (1, 2, 3):
            session.delete_message(position)
        assert [stored.message.extra for stored in session.messages()] == [None] * 3
    with sqlite3.connect(path) as connection:
        assert "zanzibar" not in "".join(connection.iterdump())


def test_a_caller_may_change_its_value_and_the_memory_keeps_its_own():
    mine = {"a": [1]}
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        session = memory.session("s")
        tell(session, mine)
        mine["a"].append(2)
        told(session)[0]["a"].append(3)
        told(session)[2]["a"].append(3)
        assert told(session) == [{"a": [1]}] * 5


def test_a_retry_gives_the_first_message_and_other_values_are_other_content():
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        session = memory.session("s")
        first = session.append("user", "hi", extra={"a": 1}, client_key="k")
        assert session.append("user", "hi", extra={"a": 1}, client_key="k") == first
        with pytest.raises(ConflictError, match="was used in this branch for other messages"):
            session.append("user", "hi", extra={"a": 2}, client_key="k")


def nested(depth):
    return [nested(depth - 1)] if depth else 1


REFUSED = (
    *(object(), {1}, b"x", {1: 2}, {None: 1}, {"": {False: 1}}, [float("nan")], 9 ** (10**4)),
    *(float("inf"), nested(300), {"a": Role}, 1j),
)
MAKE = {
    "message": lambda extra: Message(role="user", parts=(TextPart(text="x"),), extra=extra),
    "call": lambda extra: ToolCall(id="c", name="f", extra=extra),
    "thought": lambda extra: ReasoningPart(text="x", extra=extra),
}


@pytest.mark.parametrize("where", MAKE)
def test_what_json_cannot_hold_exactly_is_refused_in_words(where):
    for extra in REFUSED:
        with pytest.raises(InvalidInputError, match="extra"):
            MAKE[where](extra)


def test_values_with_it_can_still_be_hashed():
    call = ToolCall(id="c", name="f", extra={"a": [1]})
    assert hash(call) == hash(ToolCall(id="c", name="f"))
    assert call != ToolCall(id="c", name="f")
    assert {Message(role="assistant", tool_calls=[call], extra=[1])}
