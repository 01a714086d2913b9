"""
Your own model: the prompt goes to an OpenAI-compatible server over httpx, the answer comes back.

Run ``python examples/own_model_http.py http://127.0.0.1:8080/v1 MODEL`` and type.
Without a server's tokenizer tokens are estimated, so leave some room
between ``Budget.context`` and the model's window.
"""

import sys
import zlib
from collections.abc import Sequence
from typing import Any

import httpx

from agentmem import Budget, Memory, Message, RenderedChat, Session


class FourLetters:
    """A `TokenCounter` for which four letters are a token; a real tokenizer is better."""

    fingerprint = "four letters"

    def render(
        self, messages: Sequence[Message], *, add_generation_prompt: bool = True
    ) -> RenderedChat:
        """Write the messages, and give each four letters an id."""
        text = "".join(f"{message.role}: {message.text}\n\n\n\n" for message in messages)
        text += "assistant:" if add_generation_prompt else ""
        pieces = (text[start : start + 4] for start in range(0, len(text), 4))
        return RenderedChat(text=text, token_ids=tuple(zlib.crc32(p.encode()) for p in pieces))

    def count(self, message: Message) -> int:
        """Return about how many tokens *message* adds."""
        return len(message.text) // 4 + 5


def to_openai(message: Message) -> dict[str, Any]:
    """Return *message* as the API takes it."""
    return {"role": str(message.role), "content": message.text}


def ask(session: Session, client: httpx.Client, model: str, text: str) -> str:
    """Say *text*, send the prompt that the memory makes, and store the answer."""
    session.append("user", text)
    prompt = session.assemble()
    body = {"model": model, "messages": [to_openai(message) for message in prompt.messages]}
    answer = client.post("/chat/completions", json=body).raise_for_status().json()
    said = str(answer["choices"][0]["message"]["content"])
    session.append("assistant", said)
    return said


def main(url: str, model: str, texts: Sequence[str], database: str = "sqlite:///own.db") -> None:
    """Talk to the server at *url*."""
    budget = Budget(context=4096, reply=512)
    with (
        Memory.open(database, counter=FourLetters(), budget=budget) as memory,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        session = memory.session("own")
        session.pin("role", "You are a travel agent. Answer in one sentence.")
        for text in texts:
            print(ask(session, client, model, text))
        print("balances:", session.check() == ())


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], [line.strip() for line in sys.stdin if line.strip()])
