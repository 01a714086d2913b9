"""Validation of text: no NUL and no surrogates, for every database and tokenizer."""

import re

from agentmem.errors import InvalidInputError, InvalidTextError

_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
# In order of precedence: a pair, a lone surrogate, any other escape.
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    r"|\\.",
    re.DOTALL,
)


def check_text(what: str, text: str) -> str:
    """
    Return *text* if every database can store it.

    PostgreSQL rejects NUL, and a surrogate has no UTF-8 form; SQLite would accept the first
    and fail late on the second, so both are rejected before anything is written.

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
    Make any str storable: surrogate pairs are joined, lone surrogates and NUL become U+FFFD.

    Storable text is returned unchanged.
    """
    joined = _PAIR.sub(
        lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text
    )
    return _UNSTORABLE.sub("\ufffd", joined)


def repair_escapes(json_text: str) -> str:
    r"""
    Replace each escaped lone surrogate in *json_text* by U+FFFD.

    ``"\ud83c"`` is plain ASCII, but invalid text after parsing. JSON without any is returned
    unchanged.
    """
    if "\\u" not in json_text:
        return json_text
    return _ESCAPE.sub(lambda found: "\ufffd" if found[1] else found[0], json_text)
