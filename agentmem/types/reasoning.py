"""
Reasoning of a model in plain text, separated from its answer by the tags of known model families.

Only for text by a model: in a user's text the same tags are a quotation.
"""

import re
from collections.abc import Iterator, Sequence

_NAMES = "think|thinking|thought|thoughts|reasoning|seed:think|antthinking"

# Opening and closing tag of each family.
_FAMILIES = (
    # DeepSeek, Qwen, GLM, SmolLM3, Granite, Nemotron, Seed, EXAONE, Reka
    (rf"<\s*(?:{_NAMES})(?:\s[^<>]*)?>", rf"<\s*/\s*(?:{_NAMES})\s*>"),
    # Magistral
    (r"\[THINK\]", r"\[/THINK\]"),
    # Command A
    (r"<\|START_THINKING\|>", r"<\|END_THINKING\|>"),
    # OpenThinker, Sky-T1
    (r"<\|begin_of_thought\|>", r"<\|end_of_thought\|>"),
    # Kimi
    ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    # Apertus
    (r"<\|inner_prefix\|>", r"<\|inner_suffix\|>"),
    # Gemma 4
    (r"<\|channel>\s*thought\b", r"<channel\|>"),
)
_MARK = re.compile(
    "|".join(
        f"(?P<open{number}>{opens})|(?P<close{number}>{closes})"
        for number, (opens, closes) in enumerate(_FAMILIES)
    ),
    re.IGNORECASE,
)
_FIRST = ("<", "[", "\u25c1")
"""First characters of all tags: most texts have none of them."""

# Tags of some families around the answer after the reasoning.
_FRAME = re.compile(
    r"\A\s*(?:<answer>(?P<answer>.*)</answer>"
    r"|<\|START_RESPONSE\|>(?P<response>.*?)(?:<\|END_RESPONSE\|>)?"
    r"|<\|begin_of_solution\|>(?P<solution>.*?)(?:<\|end_of_solution\|>)?)\s*\Z",
    re.IGNORECASE | re.DOTALL,
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_QUOTES = "'\"\u201c\u201d\u2018\u2019\u00ab\u00bb"

# gpt-oss writes each part of an answer in a separate channel.
_CHANNEL = re.compile(
    r"(?:<\|start\|>\s*assistant[^<]*)?"
    r"<\|channel\|>\s*(?P<name>analysis|commentary|final)(?P<to>[^<]*)"
    r"(?:<\|constrain\|>[^<]*)?<\|message\|>"
    r"(?P<text>.*?)(?:<\|end\|>|<\|return\|>|(?=<\|call\|>|<\|start\|>|<\|channel\|>)|\Z)",
    re.DOTALL,
)
_ANALYSIS = "<|channel|>analysis<|message|>"
# The same after decoding without control tokens.
_BARE_CHANNELS = re.compile(
    r"\A\s*analysis(?:(?P<thought>.*?)assistantfinal(?P<answer>.*)|(?P<cut>[A-Z].*))\Z", re.DOTALL
)
# Granite 3.2
_SPOKEN = re.compile(
    r"\A\s*Here(?: is|'s) my thought process:(?P<thought>.*?)"
    r"(?:Here(?: is|'s) my response:(?P<answer>.*))?\Z",
    re.DOTALL,
)

# The rest may form another tag, as in "<th<think></think>ink>".
_MAX_ROUNDS = 8


def split_reasoning(text: str) -> tuple[str, str]:
    """
    Return the reasoning in *text*, which a model wrote, and the answer without it.

    Reasoning may be closed, cut off, nested or repeated, and its opening tag may be in the prompt:
    text before a lone closing tag is reasoning. Tags in code and in quotation marks are part of the
    answer. Without reasoning *text* is returned unchanged.
    """
    thoughts: list[str] = []
    for _ in range(_MAX_ROUNDS):
        if (found := _split_once(text)) is None:
            break
        thoughts.append(found[0].strip())
        text = found[1]
    return "\n\n".join(thought for thought in thoughts if thought), text


def names_reasoning(text: str) -> bool:
    """Whether *text*, such as a chat template, has a reasoning tag of a known family."""
    return bool(_MARK.search(text) or "<|channel|>" in text or "Here is my thought process" in text)


def open_reasoning(prompt: str) -> str:
    """Return the opening tag of reasoning that is open at the end of *prompt*, or ''."""
    if prompt.rstrip().endswith(_ANALYSIS):
        return _ANALYSIS
    marks = list(_MARK.finditer(prompt))
    return marks[-1][0] if marks and (marks[-1].lastgroup or "").startswith("open") else ""


def _split_once(text: str) -> tuple[str, str] | None:
    """Return reasoning and answer; None where *text* has no reasoning."""
    if "<|channel|>" in text and _CHANNEL.search(text):
        return _split_channels(text)
    for pattern in (_BARE_CHANNELS, _SPOKEN):
        if found := pattern.match(text):
            parts = found.groupdict()
            return parts["thought"] or parts.get("cut") or "", (parts["answer"] or "").strip()
    return _split_marks(text) if any(first in text for first in _FIRST) else None


def _split_channels(text: str) -> tuple[str, str]:
    thoughts: list[str] = []
    said: list[str] = []
    end = 0
    for part in _CHANNEL.finditer(text):
        said.append(text[end : part.start()])
        end = part.end()
        if part["name"] == "analysis":
            thoughts.append(part["text"].strip())
        elif "to=" in part["to"]:
            # A call that was left as text: neither reasoning nor answer, but not dropped.
            said.append(f"{part['to'].strip()} {part['text']}")
        else:
            said.append(part["text"])
    said.append(text[end:])
    answer = "\n\n".join(piece.strip() for piece in said if piece.strip())
    return "\n\n".join(thoughts), answer


def _split_marks(text: str) -> tuple[str, str] | None:
    pieces: list[str] = []
    is_thought: list[bool] = []
    depth, quoted, begin = 0, 0, 0
    opens = False
    for mark, is_quoted in _marks(text):
        is_open = (mark.lastgroup or "").startswith("open")
        if is_quoted and not depth and (is_open or quoted):
            quoted += 1 if is_open else -1
            continue
        opens = is_open
        pieces.append(text[begin : mark.start()])
        begin = mark.end()
        if not opens and not depth:
            is_thought = [True] * len(pieces)
            continue
        is_thought.append(depth > 0)
        depth += 1 if opens else -1
    if not pieces:
        return None
    # The answer follows the last closing tag, however many tags the reasoning mentions.
    pieces.append(text[begin:])
    is_thought.append(opens)
    thoughts = [p.strip() for p, thought in zip(pieces, is_thought, strict=True) if thought]
    said = [p for p, thought in zip(pieces, is_thought, strict=True) if not thought]
    answer = _unframed(_joined(said))
    ends_in_thought = opens or not said[-1].strip()
    return "\n\n".join(filter(None, thoughts)), answer.rstrip() if ends_in_thought else answer


def _marks(text: str) -> Iterator[tuple[re.Match[str], bool]]:
    """Yield each tag, and whether it is in code or in a quotation."""
    spans = [found.span() for found in _CODE.finditer(text)] if "`" in text else []
    at = 0
    for mark in _MARK.finditer(text):
        while at < len(spans) and spans[at][1] <= mark.start():
            at += 1
        in_code = at < len(spans) and spans[at][0] <= mark.start()
        before = text[mark.start() - 1 : mark.start()]
        after = text[mark.end() : mark.end() + 1]
        yield mark, in_code or bool(before and after and before in _QUOTES and after in _QUOTES)


def _joined(said: Sequence[str]) -> str:
    """Join the texts around reasoning, with a single white space in place of it."""
    answer = ""
    for piece in said:
        answer += piece.lstrip() if not answer or answer[-1].isspace() else piece
    return answer


def _unframed(answer: str) -> str:
    found = _FRAME.match(answer)
    if found is None:
        return answer
    return next(part for part in found.groups() if part is not None).strip()
