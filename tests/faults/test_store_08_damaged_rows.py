"""A row that cannot be read is named, harms no other, and can be deleted."""

import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from agentmem import (
    AgentMemError,
    Budget,
    DamagedRowError,
    Memory,
    Origin,
    PinTask,
    Policy,
    SessionNotFoundError,
    ToolCall,
)
from agentmem.retrieval import HybridRetriever
from agentmem.testing import HashingEmbedder, ScriptedModel

DAMAGED = "[message 5 is damaged and cannot be read]"
BAD_VALUES = {
    "parts": ["{bad", "", "[1, 2]", 7, b"\xff\xfe", '["\\ud800"]', "null", "[" * 5000],
    "role": ["unheard-of", 7, b"\xff", ""],
    "origin": ["unheard-of", 7],
    "tool_calls": ["{bad", "7", "[[1]]"],
    "created_at": ["yesterday", 5, "", "9999-99-99 99:99:99.0"],
    "stored_at": ["yesterday", 5],
    "generated_ids": ["abc", b"\x01"],
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.db"


def opened(path, **options):
    return Memory.open(
        f"sqlite:///{path}",
        model=ScriptedModel(["an answer"] * 99),
        retriever=HybridRetriever(HashingEmbedder(dimension=16)),
        **options,
    )


def talk(session, number=8):
    for index in range(number // 2):
        session.append("user", f"{session.key} question {index} about hotels")
        session.append("assistant", f"{session.key} answer {index} about trains")


def damage(path, column, value, *, table="message", where="branch_id = 1 AND position = 5"):
    with sqlite3.connect(path) as connection:
        statement = f'UPDATE {table} SET "{column}" = ? WHERE {where}'  # noqa: S608 - of this file
        given = connection.execute(statement, [value])
        assert given.rowcount
    connection.close()


def texts(session):
    return [one.message.text for one in session.messages()]


@pytest.fixture(
    params=[(c, v) for c, vs in BAD_VALUES.items() for v in vs], ids="{0[0]} {0[1]!r:.20}".format
)
def damaged(request, path):
    column, value = request.param
    with opened(path) as memory:
        talk(memory.session("hurt"))
        talk(memory.session("beside"))
        talk(memory.session("other", user="v"))
    if column == "generated_ids":
        damage(path, "generated_by", "m")
    damage(path, column, value)
    return path


def test_a_damaged_message_has_a_stand_in_and_harms_nothing_else(damaged):
    with opened(damaged, policy=Policy(recall_sessions=True)) as memory:
        hurt, beside = memory.session("hurt"), memory.session("beside")
        found = hurt.messages()
        assert [one.position for one in found] == list(range(1, 9))
        assert [one.position for one in found if one.origin is Origin.DAMAGED] == [5]
        assert found[4].message.text == DAMAGED

        prompt = hurt.assemble()
        assert DAMAGED in prompt.text
        assert any("message 5 is damaged" in warning for warning in prompt.warnings)
        problems = hurt.audit_branch().problems
        assert [(one.spans[0].first, one.problem) for one in problems] == [
            (5, "damaged and cannot be read")
        ]
        assert hurt.check()
        assert len(hurt.search("hotels")) == 7
        assert len(beside.search("hotels", everywhere=True, limit=20)) == 15
        beside.append("user", "and the hotels?")
        assert "beside question 0" in beside.assemble().text
        assert memory.wait_for_index(20)
        assert memory.index_status(user="v").num_pending == 0

        hurt.delete_message(5)
        assert found[4].message.text not in texts(hurt)
        assert hurt.audit_branch().problems == ()
        assert hurt.reply("and now?").text == "an answer"


def test_messages_of_others_are_embedded_beside_one_that_cannot_be_read(path):
    with Memory.open(f"sqlite:///{path}", model=ScriptedModel()) as memory:
        talk(memory.session("hurt"))
        talk(memory.session("other", user="v"))
    damage(path, "parts", "{bad")
    with opened(path) as memory:
        assert memory.wait_for_index(20)
        status = memory.index_status(user="v")
        assert (status.num_embedded, status.num_pending, status.last_error) == (8, 0, None)


@pytest.mark.parametrize("position", [2, 3])
def test_the_stand_in_of_a_call_or_a_result_keeps_the_transcript_legal(path, position):
    with opened(path) as memory:
        session = memory.session("hurt")
        session.append("user", "look")
        session.append("assistant", tool_calls=[ToolCall(id="c1", name="look")])
        session.append("tool", "three hotels", tool_call_id="c1")
        session.append("assistant", "there are three")
    for column in ("parts", "tool_calls", "tool_call_id", "role"):
        damage(path, column, b"\xff", where=f"branch_id = 1 AND position = {position}")
    with opened(path) as memory:
        session = memory.session("hurt")
        call, result = session.messages(2, 3)
        assert [one.id for one in call.message.tool_calls] == ["c1"]
        assert result.message.tool_call_id == "c1"
        session.reply("and then?")
        session.delete_message(position)
        assert session.messages(position, position)[0].origin is Origin.DELETED


@pytest.mark.parametrize("value", [-7, 2**60, "abc", 2.5])
def test_a_message_at_no_position_is_missing_at_its_own_and_deleted_there(path, value):
    with opened(path) as memory:
        talk(memory.session("hurt"))
    damage(path, "position", value)
    with opened(path) as memory:
        session = memory.session("hurt")
        assert texts(session)[4] == DAMAGED
        session.assemble()
        session.delete_message(5)
        assert texts(session)[4] == "[deleted]"
    assert b"hurt question 2 about" not in path.read_bytes()


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("branch", "head", 2**60),
        ("branch", "head", "abc"),
        ("branch", "head", -3),
        ("branch", "forked_at", "abc"),
        ("branch", "parent_id", 1),
        ("branch", "parent_id", 99),
        ("branch", "state", "unheard-of"),
        ("branch", "inherit", 7),
        ("branch", "updated_at", "yesterday"),
        ("session", "created_at", "yesterday"),
        ("session", "day", "yesterday"),
        ("session", "timezone", b"\xff"),
    ],
)
def test_a_session_of_which_a_row_is_damaged_is_refused_by_name_and_deletable(
    path, table, column, value
):
    with opened(path) as memory:
        talk(memory.session("hurt"))
        talk(memory.session("beside"))
    where = "id = 1"
    damage(path, column, value, table=table, where=where)
    with opened(path) as memory:
        with pytest.raises((DamagedRowError, SessionNotFoundError)) as caught:
            memory.find("hurt").assemble()
        if isinstance(caught.value, DamagedRowError):
            assert "hurt" in str(caught.value)
        beside = memory.session("beside")
        assert len(beside.search("hotels", everywhere=True, limit=20)) >= 4
        assert "beside" in [one.key for one in memory.sessions()]
        assert memory.purge(timedelta(days=1)) == ()
        memory.delete("hurt")
        assert [one.key for one in memory.sessions()] == ["beside"]


@pytest.mark.parametrize("column", ["layout", "tokens_by_tier", "pins", "created_at", "head"])
def test_a_prompt_is_made_although_the_log_of_the_one_before_cannot_be_read(path, column):
    with opened(path, budget=Budget(context=120, reply=16)) as memory:
        session = memory.session("hurt")
        for index in range(6):
            session.reply(f"question {index} about the hotels in Lisbon")
    damage(path, column, "{bad", table="assembly", where="id = (SELECT max(id) FROM assembly)")
    with opened(path, budget=Budget(context=120, reply=16)) as memory:
        session = memory.session("hurt")
        assert session.reply("and now?").text == "an answer"
        assert session.assemble().assembly_id
        assert "assembly" in session.check()[0].problem


def test_a_pin_that_cannot_be_read_is_an_error_and_never_left_out(path):
    with opened(path, policy=Policy(auto_pin=PinTask())) as memory:
        session = memory.session("hurt")
        session.pin("limit", "Never more than 500 EUR.")
        talk(session)
        talk(memory.session("beside"))
    damage(path, "text", b"\xff", table="pin_version", where="made_from IS NULL")
    with opened(path) as memory:
        with pytest.raises(DamagedRowError, match="'pin_version'"):
            memory.session("hurt").assemble()
        memory.session("beside").assemble()
        memory.session("hurt").delete_pin("limit")
        memory.session("hurt").assemble()


def test_an_export_has_the_stand_in_and_is_loaded_with_it(path, tmp_path):
    with opened(path) as memory:
        talk(memory.session("hurt"))
        talk(memory.session("beside"))
    damage(path, "parts", "{bad")
    with opened(path) as memory:
        assert memory.export(tmp_path / "all.jsonl").messages == 16
    assert DAMAGED in (tmp_path / "all.jsonl").read_text()
    with opened(tmp_path / "n.db") as memory:
        assert memory.load(tmp_path / "all.jsonl").messages == 16
        assert texts(memory.find("hurt"))[4] == DAMAGED
        assert memory.find("hurt").check()
        assert memory.find("beside").check() == ()


def test_a_damaged_row_that_an_export_cannot_hold_is_named_before_a_file_is_there(path, tmp_path):
    with opened(path) as memory:
        talk(memory.session("hurt"))
    damage(path, "state", "unheard-of", table="branch", where="id = 1")
    with opened(path) as memory:
        with pytest.raises(AgentMemError, match="hurt"):
            memory.export(tmp_path / "e.jsonl")
        assert not (tmp_path / "e.jsonl").exists()


def test_a_damaged_age_keeps_a_session_from_being_purged(path):
    with opened(path) as memory:
        talk(memory.session("hurt"))
    damage(path, "updated_at", 5, table="branch", where="id = 1")
    with opened(path) as memory:
        assert memory.purge(datetime.now(UTC) - datetime(2025, 1, 1, tzinfo=UTC)) == ()
