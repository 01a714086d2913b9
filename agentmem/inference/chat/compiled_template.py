"""
A chat template as transformers itself has compiled it.

`apply_chat_template` takes anything for a message, and walks through all of a conversation twice
to make plain values of it. Ours are plain already, and a prompt is written again and again.
"""

from typing import Any

from jinja2.exceptions import TemplateError
from transformers.utils import chat_template_utils

_COMPILE = "_compile_jinja_template"


def compile_template(source: str) -> Any | None:
    """
    Return the compiled template, None where this version of transformers keeps it elsewhere.

    It is not part of the public API of transformers, so its caller compares what it writes with
    what `apply_chat_template` does.
    """
    compile_source = getattr(chat_template_utils, _COMPILE, None)
    if compile_source is None:
        return None
    try:
        return compile_source(source)
    except (TemplateError, TypeError):
        return None
