"""Starts the peers' process in their own environment, talks to it, and compares what was timed."""

import json
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agentmem.types import Message

Timed = dict[str, Any]
Runs = dict[str, list[Timed]]

NAMES = {
    "agentmem": "agentmem assemble()",
    "openai_agents": "OpenAI Agents get_items(limit=60)",
    "langchain": "LangChain trim_messages",
    "langchain_kept": "the same, counts kept",
}
_FOLDER = Path(__file__).parent
_PYTHON = _FOLDER.parent / ".venv-peers" / "bin" / "python"


def what_is_missing() -> str | None:
    """Say in one line how to make the peers' environment; None when it is there."""
    return None if _PYTHON.exists() else "the peers are not installed: make peers"


class Peers:
    """
    A running peers_assemble.py, which answers each line of JSON with another.

    Args:
        tokenizer: the tokenizer.json that it counts with.
        database: the SQLite file that it makes.
    """

    def __init__(self, tokenizer: Path, database: Path) -> None:
        command = [str(_PYTHON), str(_FOLDER / "peers_assemble.py"), str(tokenizer), str(database)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)  # noqa: S603 - our own program
        self.versions: dict[str, str] = self._read()

    def say(self, messages: Sequence[Message]) -> None:
        """Put *messages* at the end of both transcripts."""
        plain = [{"role": str(one.role), "content": one.text} for one in messages]
        self._ask("say", messages=plain)

    def read(self, limit: int) -> Timed:
        """Read the last *limit* messages with `SQLAlchemySession`."""
        return self._ask("openai_agents", limit=limit)

    def trim(self, max_tokens: int, *, is_kept: bool = False) -> Timed:
        """Trim to *max_tokens* with `trim_messages`; *is_kept* looks up counts it made before."""
        return self._ask("langchain_kept" if is_kept else "langchain", max_tokens=max_tokens)

    def _ask(self, do: str, **more: Any) -> Timed:
        assert self._process.stdin is not None, "it was asked for a pipe"
        self._process.stdin.write(json.dumps({"do": do, **more}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None, "it was asked for a pipe"
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the peers' process has ended: its standard error says why")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # The end of its input is the end of the process.
        self._process.communicate()


def compare(runs: Runs, versions: Mapping[str, str]) -> dict[str, Any]:
    """Give medians and what they say of each other."""
    peers: dict[str, Any] = {}
    for name, rows in runs.items():
        seconds = [row["seconds"] for row in rows]
        peers[name] = {
            "p50_ms": round(1000 * statistics.median(seconds), 2),
            "p95_ms": round(1000 * statistics.quantiles(seconds, n=20)[-1], 2),
            "runs": len(rows),
            "messages": rows[-1]["messages"],
            "tokens": rows[-1].get("tokens"),
        }
    ours = peers["agentmem"]["p50_ms"]
    return {
        "langchain_over_ours": round(peers["langchain"]["p50_ms"] / ours, 2),
        "ours_over_openai_agents": round(ours / peers["openai_agents"]["p50_ms"], 3),
        "peers": {**peers, "versions": dict(versions)},
    }


def print_table(peers: Mapping[str, Any]) -> None:
    """Print a line for each of the *peers* that `compare` has compared."""
    print(f"{'':>34} {'p50 ms':>9} {'p95 ms':>9} {'runs':>5} {'messages':>9} {'tokens':>7}")
    for key, name in NAMES.items():
        row = peers[key]
        print(
            f"{name:>34} {row['p50_ms']:>9} {row['p95_ms']:>9} {row['runs']:>5} "
            f"{row['messages']:>9} {row['tokens'] or '':>7}"
        )
