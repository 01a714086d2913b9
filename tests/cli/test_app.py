"""The commands as a user meets them: their output and their exit code."""

import sqlite3

import pytest

from agentmem.config import Budget
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from tests.builders import words
from tests.cli.command import agentmem, agentmem_process


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.fixture
def written(url):
    budget = Budget(context=80, reply=20)
    with Memory.open(url, model=ScriptedModel(), budget=budget) as memory:
        session = memory.session("trip")
        session.pin("role", "You are a [bold]travel[/bold] agent.")
        for number in range(10):
            session.reply(words(10, f"n{number}"))
        session.append("user", "escape \x1b[31m codes")
    return url


def test_sessions_lists_them_with_their_sizes(written):
    done = agentmem("sessions", "--database", written)

    assert done.returncode == 0
    assert "trip" in done.stdout
    assert "21" in done.stdout


@pytest.mark.slow
def test_in_a_process_of_its_own_a_command_does_the_same(written):
    for arguments in (["sessions", "-d", written], ["show", "trip", "-d", written], ["show"]):
        here, there = agentmem(*arguments), agentmem_process(*arguments)
        assert (here.returncode, here.stdout) == (there.returncode, there.stdout)
        assert here.stderr == there.stderr


def test_show_prints_pins_and_messages_and_no_control_codes(written):
    done = agentmem("show", "trip", "--database", written)

    assert done.returncode == 0
    assert "You are a [bold]travel[/bold] agent." in done.stdout
    assert "escape \\x1b[31m codes" in done.stdout
    assert "\x1b" not in done.stdout


def test_truncations_names_what_left_and_where_it_is(written):
    done = agentmem("truncations", "trip", "--database", written)

    assert done.returncode == 0
    assert "left the window" in done.stdout
    assert "store" in done.stdout


def test_check_says_that_the_log_balances(written):
    done = agentmem("check", "trip", "--database", written)

    assert done.returncode == 0
    assert "balances" in done.stdout


def test_check_finds_a_record_that_is_gone_and_exits_with_1(written, tmp_path):
    with sqlite3.connect(tmp_path / "agent.db") as connection:
        connection.execute("DELETE FROM truncation")
    connection.close()

    done = agentmem("check", "trip", "--database", written)

    assert done.returncode == 1
    assert "left out without a record" in " ".join(done.stdout.split())


def test_db_upgrade_makes_the_tables_and_says_so_once(url):
    first = agentmem("db", "upgrade", "--database", url)
    again = agentmem("db", "upgrade", "--database", url)

    assert (first.returncode, again.returncode) == (0, 0)
    assert first.stdout.startswith("empty → ")
    assert again.stdout.startswith("already at ")


def test_db_downgrade_asks_before_it_deletes(written):
    kept = agentmem("db", "downgrade", "0001", "--database", written, stdin="n\n")
    current = agentmem("db", "current", "--database", written).stdout.strip()
    gone = agentmem("db", "downgrade", "0001", "--database", written, stdin="y\n")

    assert (kept.returncode, gone.returncode) == (130, 0)
    assert "is deleted" in kept.stdout
    assert f"{current} → 0001" in gone.stdout
    assert agentmem("db", "current", "--database", written).stdout == "0001\n"


def test_db_downgrade_goes_back_to_nothing_and_says_so_once(written):
    first = agentmem("db", "downgrade", "base", "--yes", "--database", written)
    again = agentmem("db", "downgrade", "base", "--yes", "--database", written)

    assert first.stdout.endswith(" → empty\n")
    assert again.stdout == "already at empty\n"


def test_db_downgrade_to_a_newer_revision_is_one_line(url):
    agentmem("db", "upgrade", "--database", url)
    newest = agentmem("db", "current", "--database", url).stdout.strip()
    agentmem("db", "downgrade", "0001", "--yes", "--database", url)

    done = agentmem("db", "downgrade", newest, "--yes", "--database", url)

    assert done.returncode == 2
    assert "cannot downgrade" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_database_of_a_newer_revision_that_needs_newer_code_is_refused(written, tmp_path):
    with sqlite3.connect(tmp_path / "agent.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
        connection.execute("DELETE FROM compatibility")
        connection.execute("INSERT INTO compatibility VALUES ('9999')")
    connection.close()

    done = agentmem("sessions", "--database", written)

    assert done.returncode == 2
    assert "9999" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["sessions", "--database", "nosuchdb://x"], "nosuchdb"),
        (["sessions", "--database", "not a url"], "not a url"),
        (["sessions", "--database", "sqlite:////no/such/folder/x.db"], "/no/such/folder"),
        (["show", "nowhere", "--database", "sqlite://"], "nowhere"),
        (["show"], "session"),
        (["truncations", "trip", "--bad"], "--bad"),
        (["db", "downgrade", "no-such", "--yes"], "no-such"),
        (["nonsense"], "nonsense"),
        (["chat", "--pin", "novalue", "--database", "sqlite://"], "novalue"),
        (["chat", "--context", "10", "--max-tokens", "20"], "10"),
        (["chat", "--temperature", "-1", "--database", "sqlite://"], "temperature"),
        (["chat", "--model", "/no/such/model", "--database", "sqlite://"], "/no/such/model"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(arguments, part):
    done = agentmem(*arguments)

    assert done.returncode == 2
    assert part in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_without_a_command_it_shows_help():
    done = agentmem("--help")

    assert done.returncode == 0
    for command in ("demo", "chat", "sessions", "show", "truncations", "db"):
        assert command in done.stdout


@pytest.mark.slow
@pytest.mark.model
def test_chat_answers_keeps_and_goes_on(url):
    first = agentmem_process(
        "chat", "trip", "-d", url, "--pin", "role=You are a guide.", "--max-tokens", "8",
        stdin="Hello there\n\n/pins\n/help\n/truncations\n",
    )  # fmt: skip
    again = agentmem_process("chat", "trip", "-d", url, "--max-tokens", "8", stdin="/quit\n")

    assert first.returncode == 0, first.stderr
    assert "You are a guide." in first.stdout
    assert "TTFT" in first.stdout
    assert "session trip, 2 messages" in again.stdout
