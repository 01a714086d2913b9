"""Output in any encoding, and paths in URLs that mean what they say."""

import os
import subprocess
import sys

import pytest

from agentmem.errors import ConfigError, DatabaseUrlError
from agentmem.machine.home import cache_folder
from agentmem.memory import Memory


def agentmem(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-c", "from agentmem.cli import main; main()", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["cp1252", "ascii", "iso8859-5"])
def test_text_that_the_output_cannot_hold_is_replaced(tmp_path, encoding):
    url = f"sqlite:///{tmp_path / 'm.db'}"

    made = agentmem("db", "upgrade", "-d", url, PYTHONIOENCODING=encoding)
    with Memory.open(url) as memory:
        memory.session("s").append("user", "दिल्ली 🙂 and plain words")
    shown = agentmem("show", "s", "-d", url, PYTHONIOENCODING=encoding)
    missing = agentmem("show", "→🙂", "-d", url, PYTHONIOENCODING=encoding)

    assert (made.returncode, made.stderr) == (0, b"")
    assert b"empty -> " in made.stdout
    assert (shown.returncode, shown.stderr) == (0, b"")
    assert b"and plain words" in shown.stdout
    assert missing.returncode == 2
    assert b"Traceback" not in missing.stderr


def test_a_tilde_in_a_url_is_the_home_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    with Memory.open("sqlite:///~/x.db") as memory:
        memory.session("s")

    assert (tmp_path / "x.db").is_file()


def test_a_home_that_there_is_not_is_named_in_words():
    with pytest.raises(DatabaseUrlError, match="home"):
        Memory.open("sqlite:///~no-such-user-here/x.db")


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///qu?est/m.db",
        "sqlite:///m.db?",
        "sqlite:///m.db?mode=ro",
        "sqlite:///file:m.db?uri=true",
        "sqlite:///file:m.db",
        "sqlite:///m%00.db",
        "sqlite:///pipe",
        "sqlite:////dev/null",
        f"sqlite:///{'n' * 300}",
    ],
)
def test_a_path_that_cannot_be_opened_as_written_makes_no_file(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")

    with pytest.raises(DatabaseUrlError) as caught:
        Memory.open(url)

    assert "\n" not in str(caught.value)
    assert [one.name for one in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("sqlite:///qu%3Fest.db", "qu?est.db"),
        ("sqlite:///a b#c.db", "a b#c.db"),
        ("sqlite:///50%25.db", "50%.db"),
        ("sqlite:///./~x.db", "~x.db"),
    ],
)
def test_other_signs_in_a_path_are_part_of_its_name(tmp_path, monkeypatch, url, name):
    monkeypatch.chdir(tmp_path)

    Memory.open(url).close()
    with Memory.open(url, read_only=True) as memory:
        assert memory.sessions() == ()

    assert [one.name for one in tmp_path.iterdir()] == [name]


@pytest.mark.slow
def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.delenv("AGENTMEM_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert str(cache_folder()) == "/home/ann/.cache/agentmem"
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    assert str(cache_folder()) == "/home/ann/.cache/agentmem"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "agentmem"
    monkeypatch.setenv("AGENTMEM_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"


def test_a_process_without_a_home_is_told_what_to_set(monkeypatch):
    for name in ("HOME", "AGENTMEM_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.getuid", lambda: 54321)

    with pytest.raises(ConfigError, match="AGENTMEM_CACHE"):
        cache_folder()
