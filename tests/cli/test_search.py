"""Looking for what was said, as typed."""

import pytest

from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from tests.cli.command import agentmem


@pytest.fixture
def url(tmp_path):
    path = f"sqlite:///{tmp_path / 'agent.db'}"
    with Memory.open(path, model=ScriptedModel()) as memory:
        trip = memory.session("trip")
        trip.append("user", "The safe code is 4711 [bold]\x1b[31m.", name="Ana")
        trip.append("assistant", "Noted.")
        memory.session("other").append("user", "An older code was 1234.")
        memory.session("trip", user="u43").append("user", "My code is 9999.")
    return path


def test_search_shows_what_fits_best_first(url):
    done = agentmem("search", "trip", "which code", "-d", url, "--lexical", "--full")

    assert done.returncode == 0
    assert "4711 [bold]" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Ana" in done.stdout
    assert "1234" not in done.stdout


def test_search_goes_to_other_sessions_when_asked_and_to_no_other_user(url):
    done = agentmem("search", "trip", "code", "-d", url, "--lexical", "--everywhere", "--full")

    assert "4711" in done.stdout
    assert "1234" in done.stdout
    assert "9999" not in done.stdout


@pytest.mark.parametrize("arguments", [("trip",), ()])
def test_index_status_tells_how_far_it_can_be_searched(url, arguments):
    done = agentmem("index", "status", *arguments, "-d", url, "--lexical")

    assert done.returncode == 0
    assert "no embedder is configured" in done.stdout


@pytest.mark.slow
def test_index_rebuild_embeds_and_shows_what_there_is(url):
    done = agentmem("index", "rebuild", "-d", url)
    found = agentmem("search", "trip", "secret number", "-d", url, "--limit", "1", "--full")

    assert done.returncode == 0, done.stderr
    assert "embedded" in done.stdout
    assert "semantic search" in done.stdout
    assert "4711" in found.stdout
    assert "dense 1" in " ".join(found.stdout.split())


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("search", "nope", "x", "--lexical"), "no session 'nope'"),
        (("search", "trip", " ", "--lexical"), "query must be a non-blank string"),
        (("search", "trip", "x", "--limit", "0", "--lexical"), "limit must be"),
        (("search", "trip", "x", "--embedder", "/nowhere"), "no embedding model"),
        (("index", "status", "nope", "--lexical"), "no session 'nope'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(url, arguments, part):
    done = agentmem(*arguments, "-d", url)

    assert done.returncode == 2
    assert part in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.stderr
