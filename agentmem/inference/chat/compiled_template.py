"""
The chat template as compiled by transformers.

`apply_chat_template` accepts any type of message, and traverses the conversation twice to convert
it to plain values. Ours are plain already, and prompts are rendered often.
"""

from typing import Any

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

_COMPILE = "_compile_jinja_template"


def compile_template(source: str) -> Any | None:
    """
    Return the compiled template; None where this version of transformers has it elsewhere.

    It is not part of the public API of transformers, so the caller compares its output with that of
    `apply_chat_template`.
    """
    compile_source = getattr(chat_template_utils, _COMPILE, None)
    if compile_source is None:
        return None
    try:
        return compile_source(source)
    except (TemplateError, TypeError):
        return None
