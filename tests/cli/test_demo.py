"""The demo: with a script, on the real model, and on a server of the OpenAI protocol."""

import io
import re

import pytest
from rich.console import Console

from agentmem.cli import story
from agentmem.cli.demo import run_demo
from tests.cli.command import agentmem
from tests.openai_server import openai_server


def demo(tmp_path, *options):
    return agentmem("demo", "--database", f"sqlite:///{tmp_path / 'demo.db'}", *options)


def row(name, said):
    return re.search(rf"│ {name} +│ (.+?) +│", said)[1]


def assert_memory_is_right(said):
    assert row("pinned", said) == "2 pins, byte for byte in 8 of 8 prompts"
    assert re.match(r"messages 1 to \d+ left the window", row("left", said))
    assert story.FACT in row("recalled", said)
    assert int(re.match(r"[\d,]+", row("reused", said))[0].replace(",", "")) >= 0
    assert row("reopened", said) == "the prompt is the same bytes"
    assert re.match(r"each message is shown or on record, in all \d+ ", row("accounted", said))


def test_the_scripted_demo_is_one_screen_and_its_memory_is_right(tmp_path):
    done = demo(tmp_path, "--model", "scripted")

    assert done.returncode == 0, done.stderr
    assert_memory_is_right(done.stdout)
    assert row("recalled", done.stdout).endswith("4417 is in the answer")
    assert len(done.stdout.splitlines()) <= 40
    assert "--server URL" in done.stdout


def test_a_second_demo_is_another_session(tmp_path):
    demo(tmp_path, "--model", "scripted")

    assert "session lisbon-trip-2" in demo(tmp_path, "--model", "scripted").stdout


@pytest.mark.model
def test_the_demo_plays_on_the_small_model(real_model, tmp_path):
    console = Console(file=io.StringIO(), width=160)

    replies = run_demo(console, f"sqlite:///{tmp_path / 'demo.db'}", real_model, "A remark.")

    said = console.file.getvalue()
    assert_memory_is_right(said)
    assert said.startswith("A travel agent with a window of ")
    of_subtask = replies[3].usage
    assert of_subtask.cached_tokens / of_subtask.prompt_tokens > 0.5


def test_the_demo_plays_on_a_server(tmp_path):
    with openai_server() as server:
        done = demo(tmp_path, "--server", server.url)

    assert done.returncode == 0, done.stderr
    assert_memory_is_right(done.stdout)
    assert "stub-7b answers" in done.stdout
    assert row("recalled", done.stdout).endswith("4417 is in the answer")
    first = server.asked[0]
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    tools = [m for asked in server.asked for m in asked["messages"] if m["role"] == "tool"]
    assert tools
    assert all(message["tool_call_id"] for message in tools)


def test_a_server_that_is_not_there_is_one_line(tmp_path):
    done = demo(tmp_path, "--server", "http://127.0.0.1:9/v1")

    assert done.returncode == 2
    assert done.stderr.startswith("error: no OpenAI-compatible server answers at")
    assert len(done.stderr.splitlines()) == 1
