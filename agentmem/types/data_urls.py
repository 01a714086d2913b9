"""Bytes in the text of a URL, and the short text that stands for them where a model reads."""

import re
from typing import Final

_MAX_URL_CHARS: Final = 500
"""Of a URL that is shown; longer ones hold bytes or signatures, which say nothing to a model."""

_SHORTEST: Final = 64
"""Characters of base64 in a text that are worth a stand-in."""

_KILO: Final = 1000
_DATA = re.compile(r"\s*data\s*:", re.IGNORECASE)
_MEDIA = re.compile(r"\s*([\w.+-]{1,40}/[\w.+-]{1,60})\s*\Z", re.ASCII)
_BASE64 = re.compile(r";\s*base64\s*\Z", re.IGNORECASE)
_SPACE = re.compile(r"\s+")
_IN_TEXT = re.compile(
    rf"data:(?:[\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]+)*;base64,[\w+/%-]{{{_SHORTEST},}}=*",
    re.IGNORECASE | re.ASCII,
)


def shown_image(url: str, alt: str) -> str:
    """Return what a text model is shown in place of an image: a description, or where it is."""
    described = alt.strip() and not _DATA.match(alt)
    return f"[image: {alt if described else shown_url(url)}]"


def shown_url(url: str) -> str:
    """
    Return *url* as it may be shown: of a ``data:`` URL the media type and its size.

    A long URL of another kind is cut, with its length.
    """
    if _DATA.match(url):
        return _stand_in(url)
    if len(url) <= _MAX_URL_CHARS:
        return url
    return f"{url[:_MAX_URL_CHARS]}... ({len(url)} characters)"


def without_data(text: str) -> str:
    """Return *text* with a short stand-in for each ``data:`` URL in base64."""
    if "base64," not in text and "base64," not in text.lower():
        return text
    return _IN_TEXT.sub(lambda found: f"[{_stand_in(found[0])}]", text)


def _stand_in(url: str) -> str:
    head, _, body = url.partition(":")[2].partition(",")
    media = _MEDIA.match(head.partition(";")[0])
    kind = media[1].lower() if media else "data"
    return f"{kind}, {_size(_num_bytes(body, is_base64=_BASE64.search(head) is not None))}"


def _num_bytes(body: str, *, is_base64: bool) -> int:
    # Each escape of a URL is three characters for one byte; white space counts for nothing.
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
