"""A Starlette app through real sockets, with clients that drop and a server that is ended."""

import asyncio
import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.responses import StreamingResponse
from starlette.routing import Route

from agentmem.memory import Memory
from tests.inference.tiny import tiny_model, tiny_module
from tests.memory.test_closing import Slow, is_idle, said

pytestmark = pytest.mark.slow

MODULE = tiny_module()
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(params=["generator", "local"])
def model(request):
    Slow.running = 0
    return Slow(*["one two three four five six"] * 9) if request.param == "generator" else local()


def local():
    return tiny_model(module=MODULE)


def app_over(memory):
    async def talk(request):
        session = await memory.asession(request.path_params["key"])

        async def pieces():
            async with await session.astream(request.query_params["text"]) as stream:
                async for piece in stream:
                    yield f"{piece}\n"

        return StreamingResponse(pieces())

    return Starlette(routes=[Route("/{key}", talk)])


@contextlib.contextmanager
def serving(app):
    listener = socket.create_server(("127.0.0.1", 0))
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
        thread.join(30)
        assert not thread.is_alive()


async def drop(client, key):
    """Read one piece, and close the socket."""
    async with client.stream("GET", f"/{key}", params={"text": "first"}) as response:
        return await anext(response.aiter_lines())


async def becomes_idle(model):
    """Whether the model comes to rest; a server may hear late of a socket that was closed."""
    for _ in range(600):
        if is_idle(model):
            return True
        await asyncio.sleep(0.05)
    return False


async def read(client, key):
    return (await client.get(f"/{key}", params={"text": "second"})).text.replace("\n", "")


def test_clients_that_drop_leave_no_block_and_their_half_answers_are_in_place(url, model):
    async def play(address):
        async with httpx.AsyncClient(base_url=address, timeout=60) as client:
            keys = [f"user {number}" for number in range(8)]
            pieces = await asyncio.gather(*[drop(client, key) for key in keys])
            idle = await becomes_idle(model)
            answers = await asyncio.gather(*[read(client, key) for key in keys])
            return dict(zip(keys, zip(pieces, answers, strict=True), strict=True)), idle

    with Memory.open(url, model=model) as memory:
        with serving(app_over(memory)) as address:
            played, idle = asyncio.run(play(address))
        stored = {key: said(memory.session(key)) for key in played}

    assert idle
    for key, (piece, answer) in played.items():
        assert [role for role, _ in stored[key]] == ["user", "assistant"] * 2
        assert stored[key][1][1].startswith(piece.strip())
        assert stored[key][3][1] == answer


SERVER = """
import contextlib, sys, time, uvicorn
from starlette.applications import Starlette
from agentmem import Memory
from tests.memory.test_closing import Slow
from tests.memory.test_service import app_over, Route

memory = Memory.open(sys.argv[1], model=Slow("word " * 2000, pause_s=0.02))

@contextlib.asynccontextmanager
async def lifespan(app):
    yield
    await memory.aclose(timeout_s=0.1)

app = Starlette(routes=app_over(memory).routes, lifespan=lifespan)
uvicorn.run(app, port=int(sys.argv[2]), log_level="error", timeout_graceful_shutdown=1)
"""


def test_a_server_that_is_told_to_end_stores_what_clients_have_read(url):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    server = subprocess.Popen([sys.executable, "-c", SERVER, url, str(port)], cwd=ROOT)
    address, pieces = f"http://127.0.0.1:{port}/x?text=go", []
    deadline = time.monotonic() + 60
    while not pieces and time.monotonic() < deadline:
        with contextlib.suppress(httpx.HTTPError), httpx.stream("GET", address) as response:
            for piece in response.iter_lines():
                pieces.append(piece)
                if len(pieces) == 5:
                    server.send_signal(signal.SIGTERM)
        time.sleep(0.1)

    assert server.wait(30) is not None
    with Memory.open(url, model=Slow()) as memory:
        texts = said(memory.session("x"))
    assert texts[0] == ("user", "go")
    assert texts[1][1].startswith("".join(pieces).strip())
    assert len(texts) == 2
