"""
A Starlette app under uvicorn over the default model, and clients that leave as they like.

Forty clients talk over real sockets, each in sessions of its own. A half of the requests is broken
off: the socket is closed in the middle, or the server's side is cancelled by an anyio scope, by
`asyncio.wait_for`, by two cancels in a row, or by a stop button (`close()` from another thread).
Then the client asks again. In the end what was stored is compared with what each client did.

Good is 0 for ``leaked_blocks``; ``late_answers``, half answers that stand behind a later question;
``lost_text``, what a client has read and is not the beginning of what is stored; and ``hung``, the
requests and threads that did not end. ``coroutines_over_threads``, the time that 40 coroutines
take as a share of that of 40 threads for the same requests, should be at most 1.3.
"""

import argparse
import asyncio
import contextlib
import random
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import anyio
import httpx
import uvicorn
from report import print_json
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, StreamingResponse
from starlette.routing import Route

from agentmem import Memory, Role, Sampling
from agentmem.inference import LocalModel
from agentmem.memory import AsyncReplyStream, Session

_TURNS = 4
"""Questions of a session; then its client opens the next one."""

_HUNG_S = 120.0
_LEFT_BY = ("socket", "scope", "timeout", "cancels", "button")
_SUBJECTS = ("a harbour", "tea", "the moon", "a train to Lisbon", "old maps", "bread", "chess")


class Service:
    """
    The app.

    Args:
        memory: what it serves.
        max_tokens: of an answer.
    """

    def __init__(self, memory: Memory, max_tokens: int) -> None:
        self._memory = memory
        self._sampling = Sampling(max_tokens=max_tokens, ignore_eos=True)
        self.num_running = 0
        self.app = Starlette(
            routes=[
                Route("/talk", self._talk, methods=["POST"]),
                Route("/running", self._running),
            ]
        )

    async def _running(self, _: Request) -> JSONResponse:
        return JSONResponse(self.num_running)

    async def _talk(self, request: Request) -> StreamingResponse:
        asked = await request.json()
        session = await self._memory.asession(asked["session"])
        pieces = self._pieces(session, asked["text"], asked["leave"], asked["after_s"])
        return StreamingResponse(pieces, media_type="text/plain")

    async def _pieces(
        self, session: Session, text: str, leave: str, after_s: float
    ) -> AsyncIterator[str]:
        self.num_running += 1
        read = self._read if leave in ("", "socket", "button") else self._relayed
        try:
            async for piece in read(session, text, leave, after_s):
                yield piece
        finally:
            self.num_running -= 1

    async def _read(
        self, session: Session, text: str, leave: str, after_s: float
    ) -> AsyncIterator[str]:
        async with await session.astream(text, sampling=self._sampling) as stream:
            if leave == "button":
                button = threading.Timer(after_s, stream.close)
                button.daemon = True
                button.start()
            async for piece in stream:
                yield piece

    async def _relayed(
        self, session: Session, text: str, leave: str, after_s: float
    ) -> AsyncIterator[str]:
        """Read in a task of its own, which ends in the way that *leave* names."""
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        async def work() -> None:
            stream: AsyncReplyStream = await session.astream(text, sampling=self._sampling)
            async with stream:
                async for piece in stream:
                    pieces.put_nowait(piece)

        async def limited() -> None:
            if leave == "scope":
                with anyio.move_on_after(after_s):
                    await work()
            elif leave == "timeout":
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(work(), after_s)
            else:
                task = asyncio.create_task(work())
                await asyncio.sleep(after_s)
                task.cancel()
                await asyncio.sleep(0.01)
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

        task = asyncio.create_task(limited())
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        while (piece := await pieces.get()) is not None:
            yield piece
        await task


@dataclass
class Turn:
    """What a client did: its question, how it left, and what it had read then."""

    text: str
    left: str
    read: str = ""


@dataclass
class Played:
    """All that the clients did."""

    turns: dict[str, list[Turn]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)


class Client:
    """
    One client.

    Args:
        url: of the service.
        number: names its sessions, and is the seed of its choices.
        played: where it writes down what it did.
    """

    def __init__(self, url: str, number: int, played: Played) -> None:
        self._url = url
        self._number = number
        self._rng = random.Random(number)
        self._played = played

    async def play(self, until: float) -> None:
        """Talk until then."""
        session = 0
        while time.monotonic() < until:
            key = f"{self._number}-{session}"
            turns = self._played.turns.setdefault(key, [])
            async with httpx.AsyncClient(base_url=self._url, timeout=_HUNG_S) as client:
                for number in range(_TURNS):
                    await self._ask(client, key, turns, number)
                    if time.monotonic() > until:
                        return
            session += 1

    async def _ask(
        self, client: httpx.AsyncClient, key: str, turns: list[Turn], number: int
    ) -> None:
        rng = self._rng
        left = rng.choice(_LEFT_BY) if rng.random() < 0.5 else ""
        turn = Turn(f"{number}: tell me about {rng.choice(_SUBJECTS)} in {rng.random()}", left)
        turns.append(turn)
        self._played.counts[left or "whole"] += 1
        asked = {"session": key, "text": turn.text, "leave": left}
        asked["after_s"] = rng.random() * 4
        before = rng.randint(0, 8)
        try:
            async with client.stream("POST", "/talk", json=asked) as response:
                async for piece in response.aiter_text():
                    turn.read += piece
                    before -= 1
                    if left == "socket" and before < 0:
                        break
        except httpx.HTTPError as error:
            self._played.broken.append(f"{key} {left}: {type(error).__name__}: {error}")
        if left == "socket":
            # The server hears of it when the packet is there; a person asks later than that.
            await asyncio.sleep(1.0)


def judge(memory: Memory, played: Played) -> Counter[str]:
    """Compare what is stored with what was done."""
    found: Counter[str] = Counter()
    for key, turns in played.turns.items():
        stored = [one.message for one in memory.session(key).messages()]
        texts = [one.text for one in stored if one.role is Role.USER]
        found["late_answers"] += texts != [turn.text for turn in turns]
        place = 0
        for turn in turns:
            place = next((i for i in range(place, len(stored)) if stored[i].text == turn.text), -1)
            if place < 0:
                found["lost_text"] += 1
                break
            after = stored[place + 1] if place + 1 < len(stored) else None
            answer = after.text if after is not None and after.role is Role.ASSISTANT else ""
            found["lost_text"] += not answer.startswith(turn.read.strip())
            found["half"] += bool(turn.left and answer)
            place += 1
        roles = [one.role for one in stored]
        found["late_answers"] += sum(a is b is Role.ASSISTANT for a, b in pairwise(roles))
    return found


async def soak(url: str, service: Service, num_clients: int, minutes: float) -> tuple[Played, int]:
    """Let all clients play; return what they did, and how many requests did not end."""
    played = Played()
    until = time.monotonic() + minutes * 60
    clients = [Client(url, number, played).play(until) for number in range(num_clients)]
    tasks = [asyncio.create_task(one) for one in clients]
    _, hung = await asyncio.wait(tasks, timeout=minutes * 60 + _HUNG_S)
    for task in tasks:
        if task.done() and (error := task.exception()) is not None:
            played.broken.append(f"{type(error).__name__}: {error}")
    deadline = time.monotonic() + 30
    while service.num_running and time.monotonic() < deadline:  # noqa: ASYNC110 - another thread's
        await asyncio.sleep(0.05)
    for task in hung:
        task.cancel()
    return played, len(hung) + service.num_running


def compare(memory: Memory, num: int) -> tuple[float, float]:
    """Return the seconds that *num* coroutines take, and *num* threads, the better of two each."""
    sampling = Sampling(max_tokens=24, ignore_eos=True)

    def key(kind: str, number: int) -> str:
        return f"{kind} {number}"

    async def coroutines(kind: str) -> None:
        async def one(number: int) -> None:
            session = await memory.asession(key(kind, number))
            await session.areply(f"tell me about number {number}", sampling=sampling)

        await asyncio.gather(*map(one, range(num)))

    def threads(kind: str) -> None:
        def one(number: int) -> None:
            session = memory.session(key(kind, number))
            session.reply(f"tell me about number {number}", sampling=sampling)

        running = [threading.Thread(target=one, args=(number,)) for number in range(num)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()

    taken: dict[str, list[float]] = {"coroutines": [], "threads": []}
    for turn in range(2):
        started = time.perf_counter()
        threads(f"threads {turn}")
        taken["threads"].append(time.perf_counter() - started)
        started = time.perf_counter()
        asyncio.run(coroutines(f"coroutines {turn}"))
        taken["coroutines"].append(time.perf_counter() - started)
    return min(taken["coroutines"]), min(taken["threads"])


@contextlib.contextmanager
def serving(app: Starlette) -> Iterator[str]:
    """Run *app* on a free port, in a thread; give its URL."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    config = uvicorn.Config(app, log_level="warning", lifespan="off", timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        if thread.is_alive():
            raise TimeoutError("the server did not end")


def main() -> None:
    """Serve, talk, compare, and print the table and the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--max-tokens", type=int, default=24)
    options = parser.parse_args()
    threads_before = threading.active_count()
    with LocalModel.load() as model, tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'agent.db'}"
        memory = Memory.open(url, model=model)
        service = Service(memory, options.max_tokens)
        with serving(service.app) as address:
            played, hung = asyncio.run(soak(address, service, options.clients, options.minutes))
        leaked = model.kv_usage().in_use
        model.check()
        found = judge(memory, played)
        coroutines_s, threads_s = compare(memory, options.clients)
        memory.close()
        figures = {
            "benchmark": "soak_service",
            "minutes": options.minutes,
            "clients": options.clients,
            "requests": played.counts.total(),
            "left": {name: played.counts[name] for name in ("whole", *_LEFT_BY)},
            "half_answers": found["half"],
            "leaked_blocks": leaked + model.kv_usage().in_use,
            "late_answers": found["late_answers"],
            "lost_text": found["lost_text"],
            "hung": hung,
            "broken": len(played.broken),
            "coroutines_s": round(coroutines_s, 2),
            "threads_s": round(threads_s, 2),
            "coroutines_over_threads": round(coroutines_s / threads_s, 2),
            "threads": threading.active_count() - threads_before,
        }
    for line in played.broken[:10]:
        print(line)
    for name, value in figures.items():
        print(f"{name:>24}  {value}")
    print_json(figures)


if __name__ == "__main__":
    main()
