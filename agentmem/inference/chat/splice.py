"""Splices generated token ids into a prompt, where the template shows their text unchanged."""

import re
from collections.abc import Sequence

_SPACE = re.compile(r"\s*")


def splice(full: str, marked: str, contents: Sequence[str], edge: str) -> list[str | int]:
    """
    Split *full* at the contents that *marked* replaces, and return those as their index.

    A content that the template has trimmed is kept as text. After any other difference nothing is
    split, since the template depends on the content: its output takes precedence.

    Args:
        full: a rendered transcript.
        marked: the same with some contents replaced by their index between two *edge* characters.
        contents: the text of each message.
        edge: a character that occurs nowhere else.
    """
    parts: list[str | int] = [""]
    end = 0
    for odd, part in enumerate(re.split(f"{edge}([0-9]+){edge}", marked)):
        index = int(part) if odd % 2 else None
        written = part if index is None else _as_shown(contents[index], full, end)
        if not full.startswith(written, end):
            return [full]
        end += len(written)
        before = str(parts[-1])
        if index is not None and contents[index] == written:
            parts += [index, ""]
        elif index is not None and contents[index] == f" {written}" and before.endswith(" "):
            # The template has trimmed a space and written another one.
            parts[-1] = before[:-1]
            parts += [index, ""]
        else:
            parts[-1] = f"{before}{written}"
    return parts if end == len(full) else [full]


def _as_shown(content: str, full: str, begin: int) -> str:
    """Return *content*, trimmed if it is trimmed in *full* at *begin*."""
    ahead = _SPACE.match(full, begin)
    num_left = len(ahead[0]) if ahead else 0
    num_said = len(content) - len(content.lstrip())
    content = content[max(0, num_said - num_left) :]
    trimmed = (content, content.rstrip("\n"), content.rstrip())
    return next((text for text in trimmed if full.startswith(text, begin)), content)
