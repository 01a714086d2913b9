import ast
import importlib
import inspect
from pathlib import Path

import pytest

from tests.public_surface import public_values, signatures, types_of


@pytest.mark.parametrize(
    "name", ["agentmem", "agentmem.inference", "agentmem.retrieval", "agentmem.testing"]
)
def test_what_all_names_can_be_imported(name):
    """That it is sorted is for ruff to say (RUF022)."""
    module = importlib.import_module(name)

    assert [public for public in module.__all__ if not hasattr(module, public)] == []


@pytest.mark.parametrize("name", ["agentmem", "agentmem.retrieval"])
def test_the_stub_names_what_it_imports(name):
    """``__init__.pyi`` is the one list of names, for type checkers and for what runs."""
    package = importlib.import_module(name)
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    imported = {
        alias.name for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    named = ast.literal_eval(next(node.value for node in stub.body if isinstance(node, ast.Assign)))

    assert sorted(imported) == sorted(named) == sorted(package.__all__)


def test_every_type_of_a_public_signature_is_public():
    public = public_values()
    classes = {value for value in public.values() if isinstance(value, type)}
    missing = {
        f"{one.__name__} of {where}"
        for owner in public.values()
        if inspect.isclass(owner) or inspect.isfunction(owner)
        for where, hints in signatures(owner)
        for hint in hints.values()
        for one in types_of(hint)
        if one not in classes
    }

    assert sorted(missing) == []


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
