"""The demo: with a script, on the real model, and on a server of the OpenAI protocol."""

import io
import re

import pytest
from rich.console import Console

from agentmem.cli import story
from agentmem.cli.demo import run_demo
from agentmem.cli.demo_model import SCRIPTED, demo_model
from agentmem.config import InferenceConfig
from agentmem.errors import InvalidInputError
from agentmem.testing import ScriptedModel
from tests.cli.command import agentmem
from tests.openai_server import openai_server


def play(tmp_path, model, remark="A remark."):
    """Return what a demo prints, and its replies."""
    console = Console(file=io.StringIO(), width=160)
    replies = run_demo(console, f"sqlite:///{tmp_path / 'demo.db'}", model, remark)
    return console.file.getvalue(), replies


def row(name, said):
    return re.search(rf"│ {name} +│ (.+?) +│", said)[1]


def assert_memory_is_right(said):
    assert row("pinned", said) == "2 pins, byte for byte in 8 of 8 prompts"
    assert re.match(r"messages [12] to \d+ left the window", row("left", said))
    assert story.FACT in row("recalled", said)
    assert int(re.match(r"[\d,]+", row("reused", said))[0].replace(",", "")) >= 0
    assert row("reopened", said) == "the prompt is the same bytes"
    assert re.match(r"each message is shown or on record, in all \d+ ", row("accounted", said))


def test_the_command_plays_a_script_on_one_screen_and_its_memory_is_right(tmp_path):
    url = f"sqlite:///{tmp_path / 'demo.db'}"

    done = agentmem("demo", "--database", url, "--model", "scripted")

    assert done.returncode == 0, done.stderr
    assert_memory_is_right(done.stdout)
    assert row("recalled", done.stdout).endswith("4417 is in the answer")
    assert len(done.stdout.splitlines()) <= 40
    assert "--server URL" in done.stdout


@pytest.mark.slow
def test_a_second_demo_is_another_session(tmp_path):
    play(tmp_path, ScriptedModel())

    assert "session lisbon-trip-2" in play(tmp_path, ScriptedModel())[0]


@pytest.mark.model
def test_the_demo_plays_on_the_small_model(real_model, tmp_path):
    said, replies = play(tmp_path, real_model)

    assert_memory_is_right(said)
    of_subtask = replies[3].usage
    assert of_subtask.cached_tokens / of_subtask.prompt_tokens > 0.5


@pytest.mark.slow
def test_the_demo_plays_on_a_server(tmp_path):
    with openai_server() as server:
        chosen = demo_model(Console(), None, server.url, InferenceConfig())
        with chosen as (model, remark):
            said, replies = play(tmp_path, model, remark)

    assert_memory_is_right(said)
    assert "stub-7b answers" in said
    assert row("recalled", said).endswith("4417 is in the answer")
    assert replies[-1].text == "It is 4417"
    assert [message["role"] for message in server.asked[0]["messages"]] == ["system", "user"]
    tools = [m for asked in server.asked for m in asked["messages"] if m["role"] == "tool"]
    assert tools
    assert all(message["tool_call_id"] for message in tools)


def test_a_server_that_is_not_there_is_an_error_with_its_url():
    chosen = demo_model(Console(), None, "http://127.0.0.1:9/v1", InferenceConfig())

    with pytest.raises(InvalidInputError, match=r"no OpenAI-compatible server.*:9/v1"), chosen:
        pass


def test_a_server_takes_no_scripted_model():
    chosen = demo_model(Console(), SCRIPTED, "http://127.0.0.1:9/v1", InferenceConfig())

    with pytest.raises(InvalidInputError, match="leave out --server"), chosen:
        pass
