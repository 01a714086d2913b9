"""
Probes the capabilities of a chat template.

Each format is tried on transcripts of every valid shape. It is supported if all of them are
rendered completely: every text, in order, and every result paired with its call.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count, pairwise
from typing import Any, Protocol

from agentmem.errors import TranscriptError
from agentmem.inference.chat.pairing import shows_pairs
from agentmem.inference.chat.template_messages import Calls, TemplateCapabilities
from agentmem.types import Message, ReasoningPart, Role, TextPart, ToolCall


class Write(Protocol):
    """Renders messages in the format of given capabilities."""

    def __call__(
        self,
        messages: Sequence[Message],
        traits: TemplateCapabilities,
        *,
        add_generation_prompt: bool,
    ) -> str: ...


_THOUGHT = "T0T"

# Each letter is a message: s(ystem), u(ser), a(ssistant), c(all), t(ext and a call), p(arallel
# calls), r(esult of the oldest open call), n(ewest open call's result), x (result of no call).
PROBE_SHAPES = (
    *("u", "su", "sua", "suau", "s", "ssu", "uu", "suu", "uaau", "auu"),
    *("a", "au", "sau", "sa", "x", "xa", "sxu", "c", "scr", "cra", "cru"),
    *("ucra", "ucrcra", "sucrau", "sucr", "uacra", "ucru", "ucrua", "ucar", "ucara", "ucuru"),
    *("utra", "utru", "utrtra", "ptu", "upnra", "upnru", "uprnau", "supnr", "urxau"),
    *("upnura", "ucucrra", "uprnpnra"),
)

# Each line is a capability with its possible values, the best first; possibly none of them works.
_QUESTIONS: tuple[tuple[dict[str, Any], ...], ...] = (
    ({"repeats": True},),
    ({"system": True},),
    ({"systems": True},),
    ({"system_alone": True},),
    tuple(
        {"calls": Calls(as_text=as_text, whole=whole, short_ids=short_ids)}
        for as_text, whole in ((False, True), (False, False), (True, False))
        for short_ids in (False, True)
    ),
    ({"parallel": True},),
    ({"text_with_calls": True},),
    ({"loose_results": True},),
    ({"late_results": True},),
    ({"any_first": True},),
)


def find_traits(write: Write) -> TemplateCapabilities:
    """Probe the capabilities of the template that *write* uses."""
    traits = TemplateCapabilities()
    shown = [probe for probe in map(_probe, PROBE_SHAPES) if _shows(write, probe, traits)]
    for answers in _QUESTIONS:
        for answer in answers:
            better = replace(traits, **answer)
            if shown and all(_shows(write, probe, better) for probe in shown):
                traits = better
                break
    if traits.calls is not None:
        better = replace(traits, calls=replace(traits.calls, shows_ids=True))
        if all(_shows(write, probe, better) for probe in shown):
            return better
    return traits


def find_thoughts(write: Write, traits: TemplateCapabilities) -> TemplateCapabilities:
    """Probe whether the template shows reasoning in a separate field, and in which messages."""
    shown = [probe for probe in map(_probe, PROBE_SHAPES) if _shows(write, probe, traits)]
    for beside_all in (True, False):
        better = replace(traits, thoughts=True, thoughts_beside_all=beside_all)
        thinking = [tuple(map(_think, probe)) for probe in shown]
        if all(_shows(write, probe, better) for probe in thinking) and any(
            _THOUGHT in write(probe, better, add_generation_prompt=True) for probe in thinking
        ):
            return better
    return traits


def prompt_tail(write: Write, traits: TemplateCapabilities) -> str:
    """Return the generation prompt: the text after the question."""
    try:
        (user,) = _probe("u")
        return write([user], traits, add_generation_prompt=True).rpartition(user.text)[2]
    except TranscriptError:
        return ""


def only_appends(write: Write, traits: TemplateCapabilities) -> bool:
    """
    Return whether the text of a message never changes as others follow, byte for byte.

    It does where a template trims, merges, strips reasoning, or renders the last message
    differently.
    """
    spaced = [_say(Role.USER, " u\n"), _say(Role.ASSISTANT, "\n a "), _say(Role.USER, " v ")]
    thought = _say(Role.ASSISTANT, "<think>\nt\n</think>\n\nb")
    messages = [*_probe("sucra"), *_probe("aau"), thought, *spaced, *spaced]
    starts = [messages[:end] for end in range(1, len(messages) + 1)]
    try:
        texts = [write(start, traits, add_generation_prompt=False) for start in starts]
    except TranscriptError:
        return False
    return all(
        after.startswith(before) and message.text in after[len(before) :]
        for (before, after), message in zip(pairwise(["", *texts]), messages, strict=True)
    )


def write_opening(write: Write, traits: TemplateCapabilities) -> tuple[str, ...]:
    """Return the rendering of short transcripts, which shows the template's own text."""
    texts = []
    for shape in ("u", "su", "ucra"):
        try:
            texts.append(write(_probe(shape), traits, add_generation_prompt=True))
        except TranscriptError:
            texts.append("")
    return tuple(texts)


def find_default_system(write: Write, traits: TemplateCapabilities) -> str | None:
    """Return the template's default system text, if any."""
    user, system = _probe("su")[1], _probe("su")[0]
    try:
        without = write([user], traits, add_generation_prompt=False).partition(user.text)
        with_one = write([system, user], traits, add_generation_prompt=False).partition(user.text)
    except TranscriptError:
        return None
    before, found, behind = with_one[0].partition(system.text)
    own = without[0]
    frames = own.startswith(before) and own.endswith(behind)
    if not found or not frames or len(own) <= len(before) + len(behind):
        return None
    return own[len(before) : len(own) - len(behind)].strip() or None


def _shows(write: Write, probe: Sequence[Message], traits: TemplateCapabilities) -> bool:
    try:
        text = write(probe, traits, add_generation_prompt=True)
    except TranscriptError:
        return False
    return shows_pairs(probe, text, traits.calls or Calls())


def _probe(shape: str) -> tuple[Message, ...]:
    """Build a transcript of that shape in which no word occurs twice."""
    numbers = count(1)
    waiting: list[str] = []
    messages = []
    for letter in shape:
        word = f"W{next(numbers)}W"
        if letter in "rnx":
            call_id = "call_0" if letter == "x" or not waiting else waiting.pop(-(letter == "n"))
            messages.append(_say(Role.TOOL, word, tool_call_id=call_id))
        elif letter in "ctp":
            ids = [f"call_{next(numbers)}_" for _ in range(1 + (letter == "p"))]
            waiting += ids
            calls = tuple(_call(call_id) for call_id in ids)
            text = word if letter == "t" else ""
            messages.append(_say(Role.ASSISTANT, text, tool_calls=calls))
        else:
            roles = {"s": Role.SYSTEM, "u": Role.USER, "a": Role.ASSISTANT}
            messages.append(_say(roles[letter], word))
    return tuple(messages)


def _call(call_id: str) -> ToolCall:
    # No id is part of another word: it would be found at wrong places.
    word = call_id.replace("_", "")
    arguments = {f"{word}K": f"{word}V"}
    return ToolCall(id=call_id, name=f"f{word}", arguments=json.dumps(arguments))


def _think(message: Message) -> Message:
    if message.role is not Role.ASSISTANT:
        return message
    return replace(message, parts=(ReasoningPart(text=_THOUGHT), *message.parts))


def _say(role: Role, text: str, **more: Any) -> Message:
    return Message(role=role, parts=(TextPart(text=text),) if text else (), **more)
