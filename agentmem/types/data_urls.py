"""``data:`` URLs, and the short placeholders that a model reads in their place."""

import re
from typing import Final

_MAX_URL_CHARS: Final = 500
"""Maximum length of a shown URL; longer ones hold data or signatures, noise for a model."""

_SHORTEST: Final = 64
"""Minimum characters of base64 in a text for a placeholder."""

_KILO: Final = 1000
_DATA = re.compile(r"\s*data\s*:", re.IGNORECASE)
_MEDIA = re.compile(r"\s*([\w.+-]{1,40}/[\w.+-]{1,60})\s*\Z", re.ASCII)
_BASE64 = re.compile(r";\s*base64\s*\Z", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_HEAD = re.compile(
    r"data:(?:[\w.+-]+\\?/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,", re.IGNORECASE | re.ASCII
)
# JSON may escape slashes and line ends; MIME and PEM wrap base64 into lines of equal width.
_CHUNK = re.compile(r"(?:[\w+/%-]|\\/)+={0,2}|={1,2}", re.ASCII)
_BREAK = re.compile(r"(?:\s|\\[rn]){1,4}")
_ESCAPES = re.compile(r"\\[rn]|\\(?=/)")
_NO_WORD = re.compile(r"[\d+/]|[a-z][A-Z]|=\Z")
_WIDEST_WORD: Final = 40
"""Minimum characters of a base64 line; words of a text that follows a URL are shorter."""


def shown_image(url: str, alt: str) -> str:
    """Return the text of an image for a text model: its description, or its URL."""
    described = alt.strip() and not _DATA.match(alt)
    return f"[image: {alt if described else shown_url(url)}]"


def shown_url(url: str) -> str:
    """
    Return *url* for display: of a ``data:`` URL only the media type and the size.

    A long URL of another kind is truncated, with its length.
    """
    if _DATA.match(url):
        return _stand_in(url)
    if len(url) <= _MAX_URL_CHARS:
        return url
    return f"{url[:_MAX_URL_CHARS]}... ({len(url)} characters)"


def without_data(text: str) -> str:
    """Return *text* with a short placeholder for each ``data:`` URL in base64."""
    if "base64," not in text and "base64," not in text.lower():
        return text
    shown, last = [], 0
    for head in _HEAD.finditer(text):
        end = _end_of_base64(text, head.end())
        if head.start() >= last and end - head.end() >= _SHORTEST:
            shown += [text[last : head.start()], f"[{_stand_in(text[head.start() : end])}]"]
            last = end
    return "".join([*shown, text[last:]])


def _end_of_base64(text: str, start: int) -> int:
    """Return the end of the base64 that begins at *start*: one run, or lines of equal width."""
    before = _BREAK.match(text, start)
    first = _CHUNK.match(text, before.end() if before else start)
    if first is None:
        return start
    width, end, line = _width(first[0]), first.end(), first
    while width >= _WIDEST_WORD and not line[0].endswith("="):
        cut = _BREAK.match(text, end)
        found = _CHUNK.match(text, cut.end()) if cut else None
        if found is None or _width(found[0]) > width:
            break
        is_last = _width(found[0]) < width
        if is_last and (_width(found[0]) % 4 or not _NO_WORD.search(found[0])):
            break
        line, end = found, found.end()
        if is_last:
            break
    return end


def _width(chunk: str) -> int:
    return len(chunk) - chunk.count("\\")


def _stand_in(url: str) -> str:
    head, _, body = _ESCAPES.sub("", url).partition(":")[2].partition(",")
    media = _MEDIA.match(head.partition(";")[0])
    kind = media[1].lower() if media else "data"
    return f"{kind}, {_size(_num_bytes(body, is_base64=_BASE64.search(head) is not None))}"


def _num_bytes(body: str, *, is_base64: bool) -> int:
    # A percent escape is three characters for one byte; white space does not count.
    if is_base64:
        num_chars = len(body) - 2 * body.count("%") - sum(map(len, _SPACE.findall(body)))
        padding = body[-6:].count("=") + body[-6:].lower().count("%3d")
        return max(num_chars - padding, 0) * 3 // 4
    return len(body.encode()) - 2 * body.count("%")


def _size(num_bytes: int) -> str:
    if num_bytes < _KILO:
        return f"{num_bytes} bytes"
    if num_bytes < _KILO * _KILO:
        return f"{round(num_bytes / _KILO)} kB"
    return f"{num_bytes / _KILO / _KILO:.1f} MB"
