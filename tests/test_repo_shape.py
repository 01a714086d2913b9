"""The house rules: 500 lines in a file, 50 in a function, docstrings in the trade's language."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXTS = {
    str(path.relative_to(ROOT)): path.read_text()
    for folder in ("agentmem", "tests", "benchmarks", "migrations")
    for path in sorted((ROOT / folder).rglob("*.py"))
}


def test_a_file_has_at_most_500_lines():
    lines = {name: len(text.splitlines()) for name, text in TEXTS.items()}

    assert {name: number for name, number in lines.items() if number > 500} == {}


def test_a_function_has_at_most_50_lines():
    lines = {
        f"{name}:{node.lineno}: {node.name}": node.end_lineno - node.lineno + 1
        for name, text in TEXTS.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    assert {name: number for name, number in lines.items() if number > 50} == {}


USERS_WORDS = "agentmem/context/standing_words.py"
"""A list of what users write, not a text of ours."""

OPENINGS = re.compile(r'"""\s*(Give|Tell|Let|Say|Ask)\b')
WORDS = re.compile(
    r"\b(whoever|nobody|somebody|gives? way|what was said|it were|(is|are) told|in vain|for ever"
    r"|takes? up|taken up|the talk|those of (it|them)|over 0|from [01] up|no whole number"
    r"|broken off|made anew|is of use|stands? beside|as it came|to be had)\b",
    re.IGNORECASE,
)
"""Everyday words for which there is a term: evict, concurrent, retry, custom, rebuilt, corrupt."""


def test_texts_use_the_words_of_the_trade():
    """Docstrings open as PEP 257 has it ("Return ..."), and have words that a search finds."""
    found = {
        name: [match.group() for form in (OPENINGS, WORDS) for match in form.finditer(text)]
        for name, text in TEXTS.items()
        if name.startswith("agentmem") and name != USERS_WORDS
    }

    assert {name: words for name, words in found.items() if words} == {}
