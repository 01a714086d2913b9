"""The interactive chat loop."""

from collections.abc import Mapping

from rich.console import Console

from agentmem.cli.output import json_line
from agentmem.cli.tables import plain, reply_line, truncation_table
from agentmem.config import Sampling
from agentmem.errors import ContextOverflowError
from agentmem.memory import Session
from agentmem.types import Reply, repair_text

_HELP = "/pins, /truncations, /quit; other input goes to the model"


def run_chat(
    console: Console,
    session: Session,
    pins: Mapping[str, str],
    sampling: Sampling,
    *,
    as_json: bool = False,
) -> None:
    """
    Read lines until the end of input and answer each; print statistics after each reply.

    With *as_json* each answer is also a line of JSON on standard output; *console* is then another
    stream.
    """
    for key, text in pins.items():
        session.pin(key, text)
    console.print(plain(f"session {session.key}, {session.branch.head} messages. {_HELP}"))
    while True:
        try:
            # A terminal may send bytes that do not decode; they are replaced.
            line = repair_text(console.input("[bold]you:[/bold] ")).strip()
        except (EOFError, KeyboardInterrupt):
            console.print()
            return
        if line == "/quit":
            return
        if line:
            reply = _answer(console, session, line, sampling)
            if as_json and reply is not None:
                json_line(reply)


def _answer(console: Console, session: Session, line: str, sampling: Sampling) -> Reply | None:
    if line == "/pins":
        for pin in session.pins():
            console.print(plain(f"{pin.key} (version {pin.version}): {pin.text}"))
        return None
    if line == "/truncations":
        console.print(truncation_table([("main", session.truncations())]))
        return None
    if line.startswith("/"):
        console.print(_HELP)
        return None
    try:
        with session.stream(line, sampling=sampling) as stream:
            for piece in stream:
                console.print(plain(piece), end="")
            console.print("" if stream.reply.message else "(empty answer)")
            console.print(plain(reply_line(stream.reply)), style="dim", soft_wrap=True)
            return stream.reply
    except ContextOverflowError as error:
        console.print(plain(f"error: {error}"), style="red")
    except KeyboardInterrupt:
        console.print("\n(stopped; the answer so far is stored)", style="dim")
    return None
