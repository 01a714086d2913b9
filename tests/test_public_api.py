import importlib

import pytest


@pytest.mark.parametrize("name", ["agentmem", "agentmem.inference", "agentmem.testing"])
def test_what_all_names_can_be_imported(name):
    """That it is sorted is for ruff to say (RUF022)."""
    module = importlib.import_module(name)

    assert [public for public in module.__all__ if not hasattr(module, public)] == []


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
