"""Check one prompt of a random session against what was said, by the marks in `fuzz_talk`."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import legal
from fuzz_talk import ASKED, MARK, RESULT_OF

from agentmem.config import Budget
from agentmem.inference.chat.call_arguments import Arguments
from agentmem.inference.chat.template_messages import Calls, TemplateCapabilities, Transcript
from agentmem.protocols import TokenCounter
from agentmem.types import Message, Origin, Pin, Prompt, Role, Span, StoredMessage, Tier

FAULTS = (
    "over_budget",
    "pins_lost",
    "orphans",
    "conservation_errors",
    "count_differences",
    "newest_lost",
    "prefix_overstated",
    "wrong_errors",
    "mispaired",
    "authority_raised",
    "thoughts_shown",
    "duplicate_recalled",
    "thrash_sessions",
    "illegal",
    "other_bytes",
)
RECALLED = "Recalled"
_LABEL = re.compile(
    r"(?:\[(?P<where>[^\]]*)\] ?)?(?P<who>(?:user|assistant|system|tool|subtask|summary|bob|look)\b"
    r"[^:\n]{0,80}):(?:\s|$)"
)
_DATE = re.compile(r"\d{1,2} [A-Z][a-z]+( \d{4})? \d\d:\d\d")
_TIMES = re.compile(r"\s*[\[(][^\])]*\d+ times[^\])]*[\])]\s*$")
_POSITION = re.compile(r"\d+")
_OWN = {Role.USER: "U", Role.ASSISTANT: "APH", Role.TOOL: "T", Role.SYSTEM: "N"}
_STRICT = {
    "mistral": TemplateCapabilities(system=True, calls=Calls(short_ids=True), parallel=True),
    "llama": TemplateCapabilities(repeats=True, any_first=True, system=True, calls=Calls()),
    "gemma": TemplateCapabilities(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a prompt is checked against: the messages and pins of its branch."""

    messages: Sequence[StoredMessage]
    pins: Sequence[Pin]
    counter: TokenCounter
    budget: Budget

    @property
    def is_asked(self) -> bool:
        """
        Whether the model is to speak next: not where its own answer stands last.

        A question that is deleted is not asked any more, nor is its answer there.
        """
        left = [one.message for one in self.messages if one.origin is not Origin.DELETED]
        last = left[-1] if left else None
        return last is None or last.role is not Role.ASSISTANT or bool(last.tool_calls)


def check_prompt(prompt: Prompt, said: Said) -> Counter[str]:
    """Return what is wrong with *prompt*, by the names in `FAULTS`."""
    rendered = said.counter.render(prompt.messages)
    newest = Span(first=prompt.head, last=prompt.head, tier=Tier.CURRENT)
    last = prompt.layout[-1] if prompt.layout else newest
    shown = prompt.messages[0].text if prompt.messages else ""
    found = Counter(
        over_budget=int(prompt.num_tokens > said.budget.prompt),
        pins_lost=sum(pin.text not in shown for pin in said.pins),
        orphans=_orphans(prompt),
        count_differences=int(
            rendered.token_ids != prompt.token_ids
            or sum(prompt.tokens_by_tier.values()) != prompt.num_tokens
        ),
        newest_lost=int(last.last != newest.last or last.tier is not newest.tier),
        mispaired=mispaired(prompt.messages),
        illegal=int(bool(legal_violations(prompt.messages, is_asked=said.is_asked))),
        duplicate_recalled=duplicates(prompt.messages),
    )
    for kind, _ in raised(prompt.messages, said):
        found[kind] += 1
    # What the checks had to look at: a zero says something only where there was something to see.
    found["with_summaries"] = int(bool(prompt.summaries))
    found["with_recalled"] = int(any(_is_recalled(message) for message in prompt.messages))
    found["with_passages"] = int(any(span.passages for span in prompt.layout))
    return found


def legal_violations(messages: Sequence[Message], *, is_asked: bool) -> list[str]:
    """Return what an API, or a strict template behind our transcripts, would refuse."""
    found = legal.violations(messages, answer=is_asked)
    for name, traits in _STRICT.items():
        transcript = Transcript(traits, str, Arguments(str, ()))
        for message in messages:
            transcript.add(message, message.text)
        checker = getattr(legal, name)
        found += [f"{name}: {words}" for words in checker(transcript.entries())]
    return found


def mispaired(messages: Sequence[Message]) -> int:
    """Count results that do not stand in the place of their call, by id and by content."""
    found = 0
    calls: tuple[str, ...] = ()
    place = 0
    for message in messages:
        if message.role is not Role.TOOL:
            calls, place = tuple(call.id for call in message.tool_calls), 0
            continue
        is_there = place < len(calls) and message.tool_call_id == calls[place]
        told = RESULT_OF.search(message.text)
        if not is_there or (told and told[1] in calls and told[1] != calls[place]):
            found += 1
        place += 1
    return found


def duplicates(messages: Sequence[Message]) -> int:
    """Count recalled lines that repeat another one, whatever their white space and case."""
    lines = [
        " ".join(_TIMES.sub("", text).casefold().split())
        for message in messages
        if _is_recalled(message)
        for _, who, text in labelled_lines(message.text)
        if who is not None
    ]
    return len(lines) - len(set(lines))


def labelled_lines(text: str) -> Iterator[tuple[str | None, str | None, str]]:
    """Yield where, who and what of each labelled line, with the lines that go on from it."""
    where: str | None = None
    who: str | None = None
    lines: list[str] = []
    for line in text.split("\n"):
        label = _LABEL.match(line)
        if label or _DATE.match(line):
            yield where, who, "\n".join(lines)
            where, who = (label["where"], label["who"]) if label else (None, None)
            lines = []
        lines.append(line)
    yield where, who, "\n".join(lines)


def raised(messages: Sequence[Message], said: Said) -> Iterator[tuple[str, str]]:
    """Yield each word that stands in the prompt as another's, or that was only thought."""
    positions: dict[str, set[int]] = {}
    for stored in said.messages:
        for mark in MARK.finditer(stored.message.text):
            positions.setdefault(mark[0], set()).add(stored.position)
    for message in messages:
        if message.role is Role.SYSTEM:
            if left := _without_pins(message.text, said.pins):
                yield "authority_raised", f"in the system message: {left[:200]!r}"
        elif _is_derived(message):
            yield from _raised_in_lines(message, positions)
        else:
            for mark in MARK.finditer(message.text):
                if mark[1] not in _OWN[message.role]:
                    yield "authority_raised", f"{mark[0]} in a message of the {message.role}"


def _raised_in_lines(message: Message, positions: dict[str, set[int]]) -> Iterator[tuple[str, str]]:
    for where, who, text in labelled_lines(message.text):
        given = _POSITION.match(where or "")
        for mark in MARK.finditer(text):
            if mark[1] == "H":
                yield "thoughts_shown", f"{mark[0]} in {text[:120]!r}"
            elif mark[1] not in _letters(who, text):
                yield "authority_raised", f"{mark[0]} as {who!r} in {text[:120]!r}"
            elif given and int(given[0]) not in positions.get(mark[0], {int(given[0])}):
                yield "authority_raised", f"{mark[0]} at {where!r}: it was at {positions[mark[0]]}"


def _letters(who: str | None, text: str) -> str:
    """Return the letters of those who may stand behind the label *who*."""
    if who is None:
        # Without a label the text itself must say that it is a tool's or a subtask's.
        first = text.partition("\n")[0].casefold()
        return ("T" if "tool" in first else "") + ("P" if "subtask" in first else "")
    if who.startswith("tool") or "(tool" in who:
        return "T"
    if who.startswith("subtask"):
        return "APT"  # what it handed back as the result of a call is its own word for it
    if who.startswith("assistant"):
        return "AP"
    return "U" if who.startswith(("user", "bob")) else ""


def _is_derived(message: Message) -> bool:
    """Whether the memory wrote it: a summary, recalled lines, a late result in words."""
    if message.role is Role.USER:
        # A message that is clipped to nothing begins with its marker.
        return not message.text.lstrip().startswith((ASKED, "[deleted]", "[left out", "[... "))
    return message.role is Role.ASSISTANT and "Tq" in message.text


def _is_recalled(message: Message) -> bool:
    return _is_derived(message) and message.text.startswith(RECALLED)


def _without_pins(text: str, pins: Sequence[Pin]) -> str:
    for pin in pins:
        text = text.replace(pin.text, "", 1)
    return text.strip()


def _orphans(prompt: Prompt) -> int:
    """Count results without their call, and calls that were cut from a result further on."""
    called: set[str] = set()
    answered: set[str] = set()
    found = 0
    for message in prompt.messages:
        called |= {call.id for call in message.tool_calls}
        if message.tool_call_id is not None:
            found += message.tool_call_id not in called
            answered.add(message.tool_call_id)
    last_calls = next((m.tool_calls for m in reversed(prompt.messages) if m.tool_calls), ())
    open_at_end = {call.id for call in last_calls}
    return found + len(called - answered - open_at_end)
