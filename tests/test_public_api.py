import ast
import importlib
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "name", ["agentmem", "agentmem.inference", "agentmem.retrieval", "agentmem.testing"]
)
def test_what_all_names_can_be_imported(name):
    """That it is sorted is for ruff to say (RUF022)."""
    module = importlib.import_module(name)

    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.parametrize("name", ["agentmem", "agentmem.retrieval"])
def test_the_types_of_a_package_are_those_of_what_is_imported(name):
    """``__init__.pyi`` is what type checkers read, and ``__init__.py`` what runs."""
    package = importlib.import_module(name)
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    homes = {
        alias.name: node.module
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }

    assert sorted(homes) == sorted(package.__all__)
    assert homes == package._HOME_OF


def test_every_error_is_public():
    package = importlib.import_module("agentmem")
    errors = importlib.import_module("agentmem.errors")

    named = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, Exception)
    }

    assert named <= set(package.__all__)


def test_every_error_is_drawn_in_the_tree():
    errors = importlib.import_module("agentmem.errors")

    named = [name for name, value in vars(errors).items() if isinstance(value, type)]

    assert [name for name in named if name.endswith("Error") and name not in errors.__doc__] == []
