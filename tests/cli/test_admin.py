"""Moving and deleting, as typed."""

import pytest

from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from tests.cli.command import agentmem


@pytest.fixture
def url(tmp_path):
    path = f"sqlite:///{tmp_path / 'agent.db'}"
    with Memory.open(path, model=ScriptedModel()) as memory:
        session = memory.session("trip")
        session.pin("limit", "500 EUR")
        session.pin("limit", "700 EUR")
        session.reply("hello")
    return path


def test_pins_are_shown_and_their_history(url):
    now = agentmem("pins", "trip", "-d", url)
    ever = agentmem("pins", "trip", "-d", url, "--key", "limit")

    assert "700 EUR" in now.stdout
    assert "500 EUR" not in now.stdout
    assert "500 EUR" in ever.stdout


def test_a_session_moves_from_one_database_to_another(url, tmp_path):
    file, other = tmp_path / "trip.jsonl", f"sqlite:///{tmp_path / 'other.db'}"

    out = agentmem("export", str(file), "-d", url, "-u", "default", "--session", "trip")
    back = agentmem("import", str(file), "-d", other)
    shown = agentmem("show", "trip", "-d", other)

    assert (out.returncode, back.returncode, shown.returncode) == (0, 0, 0)
    assert "1 sessions, 2 messages" in out.stdout
    assert "hello" in shown.stdout


def test_a_corrupted_export_is_refused_in_one_line(url, tmp_path):
    file, other = tmp_path / "trip.jsonl", f"sqlite:///{tmp_path / 'other.db'}"
    agentmem("export", str(file), "-d", url)
    file.write_text(file.read_text()[:-40])

    done = agentmem("import", str(file), "-d", other)
    listed = agentmem("sessions", "-d", other)

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "trip" not in listed.stdout


def test_an_export_of_nobody_is_refused_in_one_line(url, tmp_path):
    done = agentmem("export", str(tmp_path / "x.jsonl"), "-d", url, "-u", "nobody")

    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "x.jsonl").exists()


def test_delete_asks_first(url):
    refused = agentmem("delete", "trip", "-d", url, stdin="n\n")
    there = agentmem("sessions", "-d", url)
    done = agentmem("delete", "trip", "-d", url, "--yes")
    gone = agentmem("show", "trip", "-d", url)

    assert refused.returncode == 130
    assert "trip" in there.stdout
    assert done.returncode == 0
    assert gone.returncode == 2


def test_purge_says_first_what_would_go(url):
    dry = agentmem("purge", "--older-than", "0s", "--dry-run", "-d", url)
    kept = agentmem("purge", "--older-than", "90d", "-d", url)
    gone = agentmem("purge", "--older-than", "0s", "--yes", "-d", url)
    bad = agentmem("purge", "--older-than", "soon", "-d", url)

    assert "1 sessions would be deleted" in dry.stdout
    assert "0 sessions are deleted" in kept.stdout
    assert "1 sessions are deleted" in gone.stdout
    assert bad.returncode == 2
