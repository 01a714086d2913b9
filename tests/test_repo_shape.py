"""The house rules: 500 lines in a file, 50 in a function, docstrings in the trade's language."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FILES = sorted(
    path
    for folder in ("agentmem", "tests", "benchmarks", "migrations")
    for path in (ROOT / folder).rglob("*.py")
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_has_at_most_500_lines(path):
    assert len(path.read_text().splitlines()) <= 500


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_function_has_at_most_50_lines(path):
    functions = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    too_long = [
        f"{node.name}: {node.end_lineno - node.lineno + 1} lines"
        for node in functions
        if node.end_lineno - node.lineno + 1 > 50
    ]
    assert too_long == []


OPENINGS = re.compile(r'"""\s*(Give|Tell|Let|Say|Ask)\b')
WORDS = re.compile(r"\b(whoever|nobody|somebody|gives? way|what was said|it were)\b", re.IGNORECASE)


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if path.is_relative_to(ROOT / "agentmem")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_texts_use_the_words_of_the_trade(path):
    """Docstrings open as PEP 257 has it ("Return ..."), and have words that a search finds."""
    text = path.read_text()
    assert OPENINGS.findall(text) == []
    assert WORDS.findall(text) == []
