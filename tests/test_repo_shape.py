"""The house rules on size: a file of at most 500 lines, a function of at most 50."""

import ast
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
