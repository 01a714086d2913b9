"""
Check that a list of messages is one that a chat API or a strict chat template takes.

An independent reading of the rules: OpenAI's Chat Completions, Anthropic's Messages (system and
tool roles are brought into its form first), and the strictest templates of local models (Mistral,
Llama, Gemma). A message is a dict in OpenAI's form or an `agentmem.types.Message`; nothing of
`agentmem.context` is used. Each function returns the violations in words; none is a legal list.

    python benchmarks/legal.py --sessions 500
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

OPENAI_ROLES = frozenset({"system", "developer", "user", "assistant", "tool"})
SYSTEM_ROLES = frozenset({"system", "developer"})
OPENAI_ID_LENGTH = 40
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
MISTRAL_ID = re.compile(r"[a-zA-Z0-9]{9}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One message, whichever form it came in. *text* is None where there is no content at all."""

    place: int
    role: str
    text: str | None
    calls: tuple[str, ...] = ()
    """Ids of the calls, in their order."""

    answers: str | None = None
    """Id of the call that a tool message answers."""

    @property
    def is_blank(self) -> bool:
        return not (self.text or "").strip()

    def __str__(self) -> str:
        return f"message {self.place} ({self.role})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One content block in Anthropic's form."""

    kind: str
    source: Entry
    id: str = ""


def entries(messages: Sequence[Any]) -> list[Entry]:
    """Return *messages* in one form, whatever they came in."""
    return [
        _of_dict(place, message) if isinstance(message, dict) else _of_message(place, message)
        for place, message in enumerate(messages)
    ]


def openai(messages: Sequence[Any]) -> list[str]:
    """Return what OpenAI's Chat Completions would refuse."""
    said = entries(messages)
    if not said:
        return ["the list is empty"]
    found = [f"{one}: there is no such role" for one in said if one.role not in OPENAI_ROLES]
    for one in said:
        if one.text is None and not (one.role == "assistant" and one.calls):
            found.append(f"{one}: content is null")
        if one.role != "assistant" and one.calls:
            found.append(f"{one}: only an assistant has tool calls")
        if (one.answers is not None) != (one.role == "tool"):
            found.append(f"{one}: tool_call_id and the tool role go together")
        found += [f"{one}: call id over 40 letters" for i in one.calls if len(i) > OPENAI_ID_LENGTH]
    return found + list(_unpaired(said))


def anthropic(messages: Sequence[Any], *, answer: bool = True) -> list[str]:
    """Return what Anthropic's Messages would refuse; with *answer* the model is to speak next."""
    said = entries(messages)
    while said and said[0].role in SYSTEM_ROLES:
        said = said[1:]
    found = [
        f"{one}: system text after the first message has no place in this form"
        for one in said
        if one.role in SYSTEM_ROLES
    ]
    turns = list(_turns(one for one in said if one.role not in SYSTEM_ROLES))
    if not turns:
        return [*found, "there is no message but the system's"]
    if turns[0][0] != "user":
        found.append(f"{turns[0][1][0].source}: the first message must be the user's")
    if answer and turns[-1][0] == "assistant":
        found.append(f"{turns[-1][1][-1].source}: the list ends in an answer (a prefill)")
    found += _empty_blocks(turns)
    found += _tool_blocks(turns)
    used = Counter(block.id for _, blocks in turns for block in blocks if block.kind == "tool_use")
    found += [f"tool_use ids must be unique: {i!r} {n} times" for i, n in used.items() if n > 1]
    found += [f"tool_use id {i!r}: letters, digits, _ and - only" for i in used if _is_odd(i)]
    return found


def mistral(messages: Sequence[Any]) -> list[str]:
    """Return what a Mistral template refuses: turns alternate, ids have nine letters."""
    said = entries(messages)
    found = list(_system_once(said))
    counted = [
        one for one in said if one.role == "user" or (one.role == "assistant" and not one.calls)
    ]
    for index, one in enumerate(counted):
        if one.role != ("user", "assistant")[index % 2]:
            found.append(f"{one}: user and assistant must alternate")
            break
    ids = [(one, i) for one in said for i in (*one.calls, *filter(None, (one.answers,)))]
    found += [f"{one}: id {i!r} is not nine letters" for one, i in ids if not _is_nine(i)]
    return found + list(_unpaired(said))


def llama(messages: Sequence[Any]) -> list[str]:
    """Return what a Llama template refuses: one system message in front, one call at a time."""
    said = entries(messages)
    found = list(_system_once(said))
    found += [f"{one}: {len(one.calls)} calls at once" for one in said if len(one.calls) > 1]
    return found + list(_unpaired(said))


def gemma(messages: Sequence[Any]) -> list[str]:
    """Return what a Gemma template refuses: neither system nor tools, turns alternate."""
    said = entries(messages)
    found = [f"{one}: no such role" for one in said if one.role not in ("user", "assistant")]
    found += [f"{one}: there are no tool calls" for one in said if one.calls]
    for index, one in enumerate(said):
        if one.role != ("user", "assistant")[index % 2]:
            found.append(f"{one}: user and assistant must alternate")
            break
    return found


def violations(messages: Sequence[Any], *, answer: bool = True) -> list[str]:
    """Return what either of the two APIs would refuse, each named."""
    return [
        *(f"openai: {words}" for words in openai(messages)),
        *(f"anthropic: {words}" for words in anthropic(messages, answer=answer)),
    ]


def _of_dict(place: int, message: dict[str, Any]) -> Entry:
    content = message.get("content")
    if isinstance(content, list):
        content = "\n".join(part.get("text") or f"[{part.get('type')}]" for part in content)
    return Entry(
        place=place,
        role=str(message.get("role")),
        text=content,
        calls=tuple(str(call.get("id")) for call in message.get("tool_calls") or ()),
        answers=message.get("tool_call_id"),
    )


def _of_message(place: int, message: Any) -> Entry:
    return Entry(
        place=place,
        role=str(message.role),
        text=message.text,
        calls=tuple(call.id for call in message.tool_calls),
        answers=message.tool_call_id,
    )


def _unpaired(said: Sequence[Entry]) -> Iterator[str]:
    """Yield calls without a result directly after them, and results without their call."""
    waiting: list[str] = []
    caller: Entry | None = None
    for one in said:
        if one.role == "tool":
            if one.answers in waiting:
                waiting.remove(one.answers)
            else:
                yield f"{one}: a result for {one.answers!r}, which waits for none here"
            continue
        if waiting:
            yield f"{caller}: no result directly after it for {waiting}"
        if len(set(one.calls)) != len(one.calls):
            yield f"{one}: call ids repeat: {one.calls}"
        waiting, caller = list(one.calls), one
    if waiting:
        yield f"{caller}: no result directly after it for {waiting}"


def _turns(said: Iterator[Entry]) -> Iterator[tuple[str, list[Block]]]:
    """Yield turns in Anthropic's form: results are the user's, neighbours of a role are one."""
    last: tuple[str, list[Block]] | None = None
    for one in said:
        if one.role == "tool":
            role, blocks = "user", [Block(kind="tool_result", source=one, id=one.answers or "")]
        else:
            role = one.role
            blocks = [Block(kind="tool_use", source=one, id=i) for i in one.calls]
            # Beside calls a text that is nothing is left out; alone it is an empty message.
            if not one.is_blank or not blocks:
                blocks.insert(0, Block(kind="text", source=one))
        if last is not None and last[0] == role:
            last[1].extend(blocks)
            continue
        if last is not None:
            yield last
        last = role, blocks
    if last is not None:
        yield last


def _empty_blocks(turns: Sequence[tuple[str, list[Block]]]) -> Iterator[str]:
    for _, blocks in turns:
        for block in blocks:
            if block.kind == "text" and block.source.is_blank:
                yield f"{block.source}: a text block must have more than white space"


def _tool_blocks(turns: Sequence[tuple[str, list[Block]]]) -> Iterator[str]:
    """Yield tool blocks that are out of place."""
    asked: list[Block] = []
    for _, blocks in turns:
        results = [block for block in blocks if block.kind == "tool_result"]
        for block, place in zip(results, blocks, strict=False):
            if block is not place:
                yield f"{block.source}: a tool_result must stand before the text of its turn"
                break
        yield from _answers(asked, results)
        asked = [block for block in blocks if block.kind == "tool_use"]
    yield from _answers(asked, [])


def _answers(asked: Sequence[Block], results: Sequence[Block]) -> Iterator[str]:
    waiting = [block.id for block in asked]
    for block in results:
        if block.id in waiting:
            waiting.remove(block.id)
        else:
            yield f"{block.source}: no tool_use {block.id!r} in the message before"
    if waiting:
        yield f"{asked[0].source}: tool_use without a tool_result in the next message: {waiting}"


def _system_once(said: Sequence[Entry]) -> Iterator[str]:
    for one in said[1:]:
        if one.role in SYSTEM_ROLES:
            yield f"{one}: one system message, and in front"


def _is_odd(call_id: str) -> bool:
    return ANTHROPIC_ID.fullmatch(call_id) is None


def _is_nine(call_id: str) -> bool:
    return MISTRAL_ID.fullmatch(call_id) is not None


def main() -> None:
    """Play random sessions of a `Memory`, check each prompt, print a table and a JSON object."""
    from fuzz_memory import run_memory_session  # noqa: PLC0415 - it checks with this file

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sessions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    started = time.perf_counter()
    total: Counter[str] = Counter()
    for seed in range(options.seed, options.seed + options.sessions):
        _, faults = run_memory_session(seed)
        total += faults
        if faults["illegal"] or faults["other_bytes"]:
            print(f"seed {seed}: illegal {faults['illegal']}, other_bytes {faults['other_bytes']}")
    rows = ("prompts", "errors", "illegal", "other_bytes")
    for name in rows:
        print(f"{name:<14}{total[name]:>8}")
    result = {name: total[name] for name in rows} | {
        "sessions": options.sessions,
        "seconds": round(time.perf_counter() - started, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
