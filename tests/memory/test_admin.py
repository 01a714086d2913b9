"""Deleting, purging, moving and looking back, through the facade."""

from datetime import UTC, datetime, timedelta

import pytest

from agentmem.config import Budget
from agentmem.errors import (
    ConflictError,
    DamagedFileError,
    InvalidInputError,
    PinNotFoundError,
    SessionNotFoundError,
)
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel, WordCounter
from agentmem.types import TruncationReason
from tests.builders import words


def texts(messages):
    return [stored.message.text for stored in messages]


@pytest.mark.slow
def test_a_deleted_session_is_gone_from_store_and_cache(memory, session, model):
    session.reply("secret")

    memory.delete("trip", user="u42")

    assert memory.sessions(user="u42") == ()
    assert model.requests == []
    with pytest.raises(SessionNotFoundError):
        session.messages()


def test_deleting_a_user_leaves_the_others(memory, session, model):
    session.reply("secret")
    memory.session("trip", user="other").reply("mine")

    assert memory.delete_user("u42") == 1

    assert memory.sessions(user="u42") == ()
    assert texts(memory.find("trip", user="other").messages()) == ["mine", "ok"]
    assert len(model.requests) == 1


@pytest.mark.slow
def test_a_deleted_message_leaves_its_place_and_the_log_balances(url):
    """Its text goes from the summary that covers it too, and so does the summary."""
    budget = Budget(context=400, reply=20)
    with Memory.open(url, model=ScriptedModel(), budget=budget) as memory:
        session = memory.session("s")
        for number in range(60):
            session.reply(f"Room {number} costs {number} EUR. {words(12, f'n{number}')}")
        assert session.summaries() != ()

        session.delete_message(1)
        prompt = session.reply("go on").prompt

        assert "Room 0" not in session.messages()[0].message.text
        assert "Room 0 costs" not in prompt.text
        assert session.check() == ()
        rules = {record.reason for record in prompt.truncations}
        assert rules <= {TruncationReason.SUMMARY_DELETED, TruncationReason.WINDOW}


def test_a_purge_says_first_what_it_would_delete(memory, session):
    session.append("user", "old")

    would = memory.purge(timedelta(0), dry_run=True)
    kept = memory.purge(timedelta(days=1))
    gone = memory.purge(timedelta(0))

    assert [stale.key for stale in would] == [stale.key for stale in gone] == ["trip"]
    assert kept == ()
    assert memory.sessions(user="u42") == ()
    for wrong in (timedelta(days=-1), timedelta.max, 90):
        with pytest.raises(InvalidInputError):
            memory.purge(wrong)


def test_an_imported_session_assembles_the_same_bytes(memory, session, tmp_path):
    session.pin("role", "you are a travel agent")
    for number in range(12):
        session.reply(words(10, f"n{number}"))
    before = session.assemble()
    memory.export(tmp_path / "one.jsonl", user="u42", key="trip")

    other = f"sqlite:///{tmp_path / 'other.db'}"
    with Memory.open(other, counter=WordCounter(), budget=Budget(context=120, reply=20)) as there:
        moved = there.load(tmp_path / "one.jsonl")
        after = there.find("trip", user="u42").assemble()
        assert there.find("trip", user="u42").check() == ()
        with pytest.raises(ConflictError):
            there.load(tmp_path / "one.jsonl")

    assert after.token_ids == before.token_ids
    assert (moved.sessions, moved.messages) == (1, 24)


def test_an_altered_export_is_refused_and_nothing_is_written(memory, session, tmp_path):
    session.append("user", "hello")
    path = tmp_path / "one.jsonl"
    memory.export(path, user="u42")
    path.write_text(path.read_text().replace("hello", "hullo"))

    with pytest.raises(DamagedFileError):
        memory.load(path, user="new")

    assert memory.sessions(user="new") == ()


def test_a_session_can_be_seen_as_it_was(session):
    session.pin("limit", "500 EUR")
    session.append("user", "one")
    then = datetime.now(UTC)
    session.pin("limit", "700 EUR")
    session.append("user", "two")

    assert texts(session.at(1).messages()) == ["one"]
    assert [pin.text for pin in session.at(1).pins()] == ["500 EUR"]
    assert texts(session.at(then).messages()) == ["one"]
    assert [pin.text for pin in session.at(2).pins()] == ["700 EUR"]
    assert session.at(0).pins() == ()
    with pytest.raises(InvalidInputError, match="2 messages"):
        session.at(3)


def test_a_pin_has_a_history_and_can_be_taken_back(session):
    session.pin("limit", "500 EUR")
    session.pin("limit", "700 EUR")

    session.undo_pin("limit")

    assert [pin.text for pin in session.pins()] == ["500 EUR"]
    assert [pin.version for pin in session.pin_history("limit")] == [1, 2, 3]
    with pytest.raises(PinNotFoundError):
        session.pin_history("nothing")
