"""Each program in examples/ runs, with a scripted model, and prints what it is to show."""

import contextlib
import importlib.util
import json
import socket
import threading
import time

import httpx
import pytest
import uvicorn

from agentmem.memory import Memory
from agentmem.testing import ScriptedModel
from tests.openai_server import openai_server
from tests.pages import ROOT

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def example(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_six_examples_and_each_has_a_test_here():
    text = (ROOT / "tests" / "test_examples.py").read_text()

    assert len(EXAMPLES) == 6
    assert [path.stem for path in EXAMPLES if f'example("{path.stem}")' not in text] == []


def test_a_tool_loop_runs_calls_until_there_is_an_answer(capsys):
    call = {"name": "multiply", "arguments": {"a": 12, "b": 31}}
    unknown = {"name": "divide", "arguments": {}}
    model = ScriptedModel([json.dumps(unknown), json.dumps(call), "It is 372."])

    example("tool_loop").main(model, "What is 12 times 31?")

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "It is 372."
    assert "error: KeyError: 'divide'" in said[3]
    assert said[5] == "5 tool 372"
    assert said[-1] == "6 assistant It is 372."


def test_parallel_subtasks_share_a_prefix_and_hand_back_one_line_each(capsys):
    example("parallel_subtasks").main(ScriptedModel())

    said = capsys.readouterr().out.splitlines()
    cached = [int(line.split(": ")[1].split(" of ")[0]) for line in said[:3]]
    assert min(cached) > 20
    assert said[4].count("assistant") == 5
    assert said[5].count("ended") == 3


@pytest.mark.slow
def test_a_long_history_is_recalled_into_a_small_window(capsys):
    module = example("recall")
    module.NUM_TURNS = 150

    module.main(ScriptedModel(["Under the blue flower pot."]))

    said = capsys.readouterr().out
    assert "41 Please note: the spare key" in said
    assert "in the prompt: True - without recall: False" in said


def test_an_old_chat_is_imported_once(capsys):
    example("import_chat").main()

    said = capsys.readouterr().out.splitlines()
    assert said[0] == "new: 4 - once more: 0"
    assert said[1] == "2026-05-03 user My passport ends in 2029."
    assert said[-1].endswith("balances: True")


@pytest.mark.slow
def test_a_model_of_ones_own_is_asked_over_http(capsys):
    with openai_server() as server:
        texts = ["The code is 4417.", "What is the code?"]
        example("own_model_http").main(server.url, "stub", texts)

    assert capsys.readouterr().out.splitlines() == ["It is 4417", "It is 4417", "balances: True"]
    roles = [message["role"] for message in server.asked[1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]


class Slow(ScriptedModel):
    """Takes a moment for each word."""

    def stream(self, request):
        for chunk in super().stream(request):
            time.sleep(0.1)
            yield chunk


@contextlib.contextmanager
def serving(app):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_level="warning", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def last_of(client, user):
    return client.get(f"/{user}").json()[-1]


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.mark.slow
def test_a_chat_service_streams_and_is_cancelled_by_button_and_by_leaving():
    service = example("chat_service")
    words = "one two three four five six seven eight nine ten"
    model = Slow([words] * 3)
    with (
        Memory.open("sqlite:///service.db", model=model) as memory,
        serving(service.ChatService(memory).app) as url,
        httpx.Client(base_url=url, timeout=30) as client,
    ):
        assert client.get("/health").json() == {"ok": True}
        assert client.post("/ana", content="Count.").text == words
        assert client.post("/ana", content="").status_code == 400
        with client.stream("POST", "/ben", content="Count.") as answer:
            pieces = answer.iter_text()
            next(pieces)
            assert client.post("/ben/stop").json() == {"stopped": True}
            rest = "".join(pieces)
        assert "ten" not in rest
        with client.stream("POST", "/eve", content="Count.") as answer:
            next(answer.iter_text())
        for user in ("ben", "eve"):
            wait_for(lambda user=user: last_of(client, user)[2] == "partial")
            assert words.startswith(last_of(client, user)[1])
            assert "ten" not in last_of(client, user)[1]
