"""The one door for text: what every database and every tokenizer can take."""

import re

from agentmem.errors import InvalidInputError, InvalidTextError

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# In the order in which they are tried: a pair, a lone half, any other escape.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\.",
    re.DOTALL,
)


def check_text(what: str, text: str) -> str:
    """
    Return *text* if every database can hold it.

    PostgreSQL refuses NUL, and a surrogate has no UTF-8 form; SQLite would take the first
    and fail late on the second, so both are refused alike, before anything is written.

    Raises:
        InvalidTextError: *text* has a NUL or a surrogate.
        InvalidInputError: *text* is not a str.
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"{what} must be a str, got {type(text).__name__}")
    if found := _UNSTORABLE.search(text):
        raise InvalidTextError(what, text, found.start())
    return text


def repair_text(text: str) -> str:
    """
    Make any str storable: surrogate pairs are joined, lone halves and NUL become U+FFFD.

    Text that is storable already comes back unchanged.
    """
    joined = _PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return _UNSTORABLE.sub("\ufffd", joined)


def repair_escapes(json_text: str) -> str:
    r"""
    Put U+FFFD in place of each lone surrogate that an escape of *json_text* hides.

    ``"\ud83c"`` is plain ASCII, and no text any more once it is parsed. What has none comes back
    unchanged.
    """
    if "\\u" not in json_text:
        return json_text
    return _ESCAPE.sub(lambda found: "\ufffd" if found[1] else found[0], json_text)
