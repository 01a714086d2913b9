"""
A tool loop: the model asks for calls, this program runs them, until the model answers.

Run ``python examples/tool_loop.py "What is 12 times 31?"``. The small default model hardly ever
asks for a tool; `main` takes any model.
"""

import json
import sys

from agentmem import (
    Budget,
    GenerationRequest,
    LanguageModel,
    Memory,
    Sampling,
    Session,
    ToolCall,
)

ROLE = """You are an assistant with one tool, multiply(a, b).
To use it answer with JSON alone: {"name": "multiply", "arguments": {"a": 2, "b": 3}}"""

MAX_ROUNDS = 5


def multiply(a: float, b: float) -> str:
    """Multiply two numbers."""
    return str(a * b)


TOOLS = {"multiply": multiply}


def ask(session: Session, model: LanguageModel) -> str:
    """Return what the model says to the prompt of now; nothing is stored yet."""
    prompt = session.assemble()
    request = GenerationRequest(token_ids=prompt.token_ids, sampling=Sampling(max_tokens=128))
    return "".join(chunk.text for chunk in model.stream(request))


def call_in(text: str) -> ToolCall | None:
    """Return the call that an answer asks for, if it is one."""
    try:
        asked = json.loads(text)
        return ToolCall(id="", name=asked["name"], arguments=json.dumps(asked["arguments"]))
    except (ValueError, KeyError, TypeError):
        return None


def run_call(call: ToolCall) -> str:
    """Return what the tool gives, or what went wrong: the model is to read both."""
    try:
        return TOOLS[call.name](**json.loads(call.arguments))
    except (KeyError, TypeError) as error:
        return f"error: {type(error).__name__}: {error}"


def answer(session: Session, model: LanguageModel, question: str) -> str:
    """Ask until there is an answer; each call and each result is a message of the session."""
    session.append("user", question)
    for _ in range(MAX_ROUNDS):
        text = ask(session, model)
        call = call_in(text)
        if call is None:
            session.append("assistant", text)
            return text
        # A call without an id is given one as it is stored; the result answers the open call.
        session.append("assistant", tool_calls=[call])
        session.append("tool", run_call(call), name=call.name)
    return "no answer after so many calls"


def main(model: LanguageModel, question: str, url: str = "sqlite:///tools.db") -> None:
    """Answer one question, and show what was stored."""
    with Memory.open(url, model=model, budget=Budget(context=1024, reply=128)) as memory:
        session = memory.session("tools")
        session.pin("role", ROLE)
        print(answer(session, model, question))
        for stored in session.messages():
            calls = ", ".join(f"{c.name}({c.arguments})" for c in stored.message.tool_calls)
            print(stored.position, stored.message.role, stored.message.text or calls)


if __name__ == "__main__":
    from agentmem.inference import LocalModel

    with LocalModel.load() as local:
        main(local, " ".join(sys.argv[1:]) or "What is 12 times 31?")
