"""Dates are those of the user's own clock, and templates print the session's day."""

import asyncio
import contextlib
import sqlite3
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from agentmem import Budget, Memory
from agentmem.errors import ConfigError, InvalidInputError
from agentmem.memory import session_clock
from agentmem.protocols import Hit
from agentmem.retrieval import HybridRetriever
from agentmem.retrieval.rows.message_table import MessageTable, indexed_message
from agentmem.store import downgrade, upgrade
from agentmem.testing import WordCounter
from tests.builders import say, stored
from tests.store.conftest import (  # noqa: F401 - fixtures
    new_postgres_url,
    new_url,
    postgres,
    postgres_url,
    shared_url,
)

LATE = datetime(2023, 5, 2, 23, 30, tzinfo=UTC)
"""Past midnight in Berlin and Tokyo, in the afternoon in Los Angeles."""

SMALL = Budget(context=400, reply=20, summary=0.3)


class Dated(WordCounter):
    """A counter whose template prints the day in every prompt."""

    day = "undated"

    @property
    def fingerprint(self):
        return f"words of {self.day}"

    def at_date(self, day):
        other = Dated()
        other.day = day.isoformat()
        return other

    def render(self, messages, *, add_generation_prompt=True):
        day = say("system", f"Today is {self.day}.")
        return super().render([day, *messages], add_generation_prompt=add_generation_prompt)


def fill(session, number=60):
    session.append("user", "The boiler was mended.", created_at=LATE)
    session.append("assistant", "Good.", created_at=LATE)
    for count in range(number):
        session.append("user", f"The boiler hums tune {count} again.", created_at=LATE)
        session.append("assistant", f"I hear tune {count}.", created_at=LATE)
        session.assemble(budget=SMALL, hits=())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("zone", "shown", "day"),
    [
        (None, "2 May 2023 23:30", "2023-05-02"),
        ("UTC", "2 May 2023 23:30", "2023-05-02"),
        ("Europe/Berlin", "3 May 2023 01:30", "2023-05-03"),
        ("America/Los_Angeles", "2 May 2023 16:30", "2023-05-02"),
        ("Asia/Kathmandu", "3 May 2023 05:15", "2023-05-03"),
    ],
)
@pytest.mark.parametrize("where", ["memory", "session"])
def test_dates_are_shown_in_the_users_zone(zone, shown, day, where):
    of_memory = {"timezone": zone} if where == "memory" else {}
    of_session = {"timezone": zone} if where == "session" else {}
    with Memory.open(
        "sqlite://", counter=WordCounter(), retriever=HybridRetriever(), **of_memory
    ) as memory:
        session = memory.session("s", **of_session)
        fill(session)

        prompt = session.assemble(query="who mended the boiler", budget=SMALL)

        assert shown in prompt.text
        assert f", {day}]" in prompt.summaries[-1].text
        with session.subtask("t") as task:
            assert shown in task.assemble(query="who mended the boiler", budget=SMALL).text


def test_recalled_messages_of_a_caller_are_shown_in_the_users_zone():
    with Memory.open("sqlite://", counter=WordCounter(), timezone="Asia/Tokyo") as memory:
        session = memory.session("s")
        old = session.append("user", "The boiler was mended.", created_at=LATE)
        for _ in range(60):
            session.append("user", "words words words words")
            session.append("assistant", "words words words words")

        prompt = session.assemble(hits=[Hit(stored=old, score=1.0)], budget=SMALL)

        assert "3 May 2023 08:30" in prompt.text


def test_a_question_names_days_of_the_users_zone():
    with Memory.open("sqlite://", counter=WordCounter(), retriever=HybridRetriever()) as memory:
        found = {}
        for zone in ("UTC", "Asia/Tokyo"):
            session = memory.session(zone, timezone=zone)
            for hours in (-12, 0, 12):
                at = LATE + timedelta(hours=hours)
                session.append("user", "we met by the river", created_at=at)
            best = session.search("where did we meet on May 3, by the river", limit=9)
            found[zone] = {hit.stored.position for hit in best if hit.score == best[0].score}
            found[zone, "first"] = best[0].stored.position

    assert found["UTC", "first"] == 3
    assert found["Asia/Tokyo", "first"] in (2, 3)
    assert 1 not in found["Asia/Tokyo"]


def test_the_clock_of_a_catalog_follows_summer_time():
    zone = ZoneInfo("Europe/Berlin")
    moments = [
        datetime(2023, 3, 26, 0, 59, tzinfo=UTC),
        datetime(2023, 3, 26, 1, 1, tzinfo=UTC),
        datetime(2023, 10, 29, 0, 59, tzinfo=UTC),
        datetime(2023, 10, 29, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, tzinfo=UTC),
        datetime(1969, 7, 20, 20, 17, tzinfo=UTC),
    ]
    message_table = MessageTable()
    for one, moment in zip(stored(*[say("user", "x")] * len(moments)), moments, strict=True):
        message_table.add([indexed_message(replaced(one, moment), 1)])

    shown = message_table.local(zone) - message_table.created

    hours = [3600 * hour for hour in (1, 2, 2, 1)]
    assert shown[:4].tolist() == hours
    assert shown[6] == 3600
    assert message_table.local(UTC) is not None


def replaced(one, moment):
    from dataclasses import replace  # noqa: PLC0415 - for this alone

    return replace(one, created_at=moment)


def test_a_time_without_a_zone_is_taken_for_one_of_the_user(tmp_path):
    naive = datetime(2023, 5, 2, 12)  # noqa: DTZ001 - the point of the test
    with Memory.open(f"sqlite:///{tmp_path / 'a.db'}", counter=WordCounter()) as memory:
        plain, zoned = memory.session("a"), memory.session("b", timezone="Europe/Berlin")
        with pytest.raises(InvalidInputError, match="time zone"):
            plain.append("user", "x", created_at=naive)

        said = zoned.append("user", "x", created_at=naive)
        with zoned.subtask("t") as task:
            again = asyncio.run(task.aappend("user", "x", created_at=naive))

        assert said.created_at == again.created_at == datetime(2023, 5, 2, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "wrong", ["Nowhere/Land", "Europe", "", "../etc/passwd", "Europe/Berlin\0", 7, b"UTC"]
)
def test_a_zone_that_is_not_there_is_refused_in_words(wrong):
    with pytest.raises(ConfigError, match="zone"):
        Memory.open("sqlite://", timezone=wrong)
    with Memory.open("sqlite://") as memory:
        with pytest.raises(ConfigError, match="zone"):
            memory.session("s", timezone=wrong)
        assert memory.sessions() == ()


def test_a_machine_without_time_zones_is_told_what_to_install(monkeypatch):
    def missing(name):
        raise zoneinfo.ZoneInfoNotFoundError(name)

    monkeypatch.setattr(session_clock, "ZoneInfo", missing)
    monkeypatch.setattr(session_clock, "available_timezones", set)

    with pytest.raises(ConfigError, match="tzdata"):
        Memory.open("sqlite://", timezone="Europe/Berlin")


@pytest.mark.parametrize("wrong", [LATE, "2023-05-02", 20230502])
def test_a_date_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigError, match="date"):
        Memory.open("sqlite://", date=wrong)
    with Memory.open("sqlite://") as memory, pytest.raises(ConfigError, match="date"):
        memory.session("s", date=wrong)


def test_templates_print_the_day_that_the_session_began_on(shared_url):  # noqa: F811
    day = date(2023, 5, 2)
    with Memory.open(shared_url, counter=Dated(), date=day) as memory:
        session = memory.session("s")
        session.append("user", "hello")
        first = session.assemble()
        other = memory.session("other", date=date(2024, 2, 29))
        other.append("user", "hello")
        assert "Today is 2024-02-29." in other.assemble().text
    with Memory.open(shared_url, counter=Dated(), timezone="Asia/Tokyo") as memory:
        again = memory.find("s").assemble()
        session = memory.session("s")
        session.append("assistant", "yes")
        later = session.assemble()
        now = memory.session("now")
        now.append("user", "hello")

        assert "Today is 2023-05-02." in first.text
        assert again.token_ids == first.token_ids
        assert again.assembly_id == first.assembly_id
        assert later.reuse.broken_by is None
        with session.subtask("t") as task:
            assert "Today is 2023-05-02." in task.assemble().text
        today = now.info.created_at.astimezone(ZoneInfo("Asia/Tokyo")).date()
        assert f"Today is {today}." in now.assemble().text


def test_a_session_keeps_its_zone_and_takes_another_by_word_alone(shared_url):  # noqa: F811
    with Memory.open(shared_url, counter=WordCounter(), timezone="Europe/Berlin") as memory:
        assert memory.session("s").info.timezone == "Europe/Berlin"
    with Memory.open(shared_url, counter=WordCounter(), timezone="Asia/Tokyo") as memory:
        before = memory.session("s").info
        memory.session("s", timezone="America/Lima", date=date(2023, 1, 1))
        after = memory.session("s").info

        assert before.timezone == "Europe/Berlin"
        assert (after.timezone, after.day) == ("America/Lima", date(2023, 1, 1))
        assert memory.session("t").info.timezone == "Asia/Tokyo"


def test_the_clock_of_a_session_survives_an_export(tmp_path):
    with Memory.open("sqlite://", counter=Dated()) as memory:
        memory.session("s", user="u", timezone="Asia/Tokyo", date=date(2023, 5, 2))
        memory.export(tmp_path / "e.jsonl", user="u")

        memory.load(tmp_path / "e.jsonl", user="v")

        info = memory.find("s", user="v").info
        assert (info.timezone, info.day) == ("Asia/Tokyo", date(2023, 5, 2))


def test_a_session_of_before_has_the_prompts_that_it_had(new_url):  # noqa: F811 - a fixture
    with Memory.open(new_url, counter=Dated()) as memory:
        memory.session("s").append("user", "hello")
    downgrade(new_url, "0007")
    upgrade(new_url)
    with Memory.open(new_url, counter=Dated(), timezone="Asia/Tokyo", date=LATE.date()) as memory:
        session = memory.session("s")

        assert (session.info.timezone, session.info.day) == (None, None)
        assert "Today is undated." in session.assemble().text


def test_a_stored_zone_that_does_not_exist_names_its_session_and_can_be_set_anew(tmp_path):
    path = tmp_path / "m.db"
    with Memory.open(f"sqlite:///{path}", counter=WordCounter()) as memory:
        memory.session("trip", timezone="Asia/Tokyo")
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE session SET timezone = 'Asia/Nowhere'")
        connection.commit()
    with Memory.open(f"sqlite:///{path}", counter=WordCounter()) as memory:
        with pytest.raises(ConfigError, match=r"session 'trip': .*'Asia/Nowhere'"):
            memory.find("trip")
        assert memory.session("trip", timezone="Asia/Tokyo").info.timezone == "Asia/Tokyo"
        assert memory.find("trip").messages() == ()
