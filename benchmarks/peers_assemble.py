"""
What bench_assemble.py measures beside agentmem, in a process and an environment of its own.

Started by `peers.Peers`, not by hand. It reads JSON objects from standard input, one a line, and
answers each with one line. Seconds are taken in here, so that the pipe is in no figure.

LangChain's `trim_messages` has its messages in memory and counts them exactly, in batches, through
the text that the ChatML template makes of each. `kept` is the same with the counts of messages
that were seen before looked up. OpenAI Agents' `SQLAlchemySession` reads from a SQLite file.
"""

import argparse
import asyncio
import importlib.metadata
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agents.extensions.memory import SQLAlchemySession
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage
from langchain_core.messages import trim_messages as trim
from tokenizers import Tokenizer

_CLASSES = {"system": SystemMessage, "user": HumanMessage, "assistant": AIMessage}
_ROLES = {cls: role for role, cls in _CLASSES.items()}
_BATCH = 1000

Said = list[dict[str, str]]
Timed = dict[str, Any]


class LangChain:
    """A transcript in memory, and what `trim_messages` keeps of it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._encode = partial(tokenizer.encode_batch_fast, add_special_tokens=False)
        self._transcript: list[BaseMessage] = []
        self._counts: dict[tuple[type[BaseMessage], str], int] = {}

    def say(self, messages: Said) -> None:
        self._transcript += [_CLASSES[one["role"]](one["content"]) for one in messages]

    def count(self, messages: list[BaseMessage]) -> int:
        """Count *messages* as ChatML shows them."""
        return sum(self._lengths(messages))

    def count_kept(self, messages: list[BaseMessage]) -> int:
        """Do what `count` does, but count each message only once in its life."""
        known = self._counts
        keys = [(type(message), str(message.content)) for message in messages]
        new = {key: one for key, one in zip(keys, messages, strict=True) if key not in known}
        known.update(zip(new, self._lengths(list(new.values())), strict=True))
        return sum(map(known.__getitem__, keys))

    def trim(self, max_tokens: int, count: Callable[[list[BaseMessage]], int]) -> Timed:
        started = time.perf_counter()
        kept = trim(
            self._transcript,
            max_tokens=max_tokens,
            token_counter=count,
            strategy="last",
            include_system=True,
            start_on="human",
            allow_partial=False,
        )
        taken = time.perf_counter() - started
        return {"seconds": taken, "messages": len(kept), "tokens": self.count(kept)}

    def _lengths(self, messages: list[BaseMessage]) -> list[int]:
        return [len(found) for found in self._encode(list(map(_chatml, messages)))]


def _chatml(message: BaseMessage) -> str:
    return f"<|im_start|>{_ROLES[type(message)]}\n{message.content}<|im_end|>\n"


class OpenAIAgents:
    """The same transcript in a SQLite file, and what a session of the SDK reads of it."""

    def __init__(self, path: Path) -> None:
        self._session = SQLAlchemySession.from_url(
            "long", url=f"sqlite+aiosqlite:///{path}", create_tables=True
        )

    async def say(self, messages: Said) -> None:
        for start in range(0, len(messages), _BATCH):
            await self._session.add_items(list(messages[start : start + _BATCH]))

    async def read(self, limit: int) -> Timed:
        started = time.perf_counter()
        items = await self._session.get_items(limit=limit)
        return {"seconds": time.perf_counter() - started, "messages": len(items)}

    async def close(self) -> None:
        await self._session.engine.dispose()


async def answer(langchain: LangChain, agents: OpenAIAgents, request: dict[str, Any]) -> Timed:
    """Do what one line asks for."""
    if request["do"] == "say":
        langchain.say(request["messages"])
        # The SDK gives the system prompt with each run and does not store it.
        await agents.say([one for one in request["messages"] if one["role"] != "system"])
        return {}
    if request["do"] == "openai_agents":
        return await agents.read(request["limit"])
    counts = {"langchain": langchain.count, "langchain_kept": langchain.count_kept}
    return langchain.trim(request["max_tokens"], counts[request["do"]])


async def main() -> None:
    """Answer line by line until there is no more."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tokenizer", type=Path, help="a tokenizer.json")
    parser.add_argument("database", type=Path, help="a SQLite file to be made")
    options = parser.parse_args()
    langchain = LangChain(Tokenizer.from_file(str(options.tokenizer)))
    agents = OpenAIAgents(options.database)
    names = ("langchain-core", "openai-agents", "sqlalchemy", "aiosqlite", "tokenizers")
    print(json.dumps({name: importlib.metadata.version(name) for name in names}), flush=True)
    for line in sys.stdin:
        print(json.dumps(await answer(langchain, agents, json.loads(line))), flush=True)
    await agents.close()


if __name__ == "__main__":
    asyncio.run(main())
