"""Walks the public classes, and finds the types that their signatures name."""

import importlib
import inspect
import typing

PACKAGES = ("agentmem", "agentmem.inference", "agentmem.retrieval")
MADE_BY_THE_PACKAGE = {
    *("Memory", "Session", "Subtask", "History", "Snapshot", "Line", "ReplyStream"),
    *("AsyncReplyStream", "LocalModel", "RequestHandle", "HybridSearchIndex", "ChatTokenizer"),
}
"""What they are constructed from is no business of a caller."""


def public_values():
    """Return each public value by its name."""
    found = {}
    for package in PACKAGES:
        module = importlib.import_module(package)
        found |= {name: getattr(module, name) for name in module.__all__}
    return found


def types_of(hint):
    """List the classes of this package that a type names."""
    parts = hint if isinstance(hint, list) else typing.get_args(hint)
    origin = typing.get_origin(hint) or hint
    found = [one for part in parts for one in types_of(part)]
    if isinstance(origin, type) and origin.__module__.startswith("agentmem"):
        found.append(origin)
    return found


def signatures(owner):
    """Yield the name and the types of each public attribute and call of a class, or of a call."""
    if not isinstance(owner, type):
        yield owner.__name__, typing.get_type_hints(owner)
        return
    hints = typing.get_type_hints(owner)
    yield owner.__name__, {name: hint for name, hint in hints.items() if name[0] != "_"}
    for name, value in inspect.getmembers_static(owner):
        is_made = name == "__init__" and owner.__name__ not in MADE_BY_THE_PACKAGE
        if name.startswith("_") and not is_made:
            continue
        inner = value.fget if isinstance(value, property) else value
        call = inspect.unwrap(getattr(inner, "__func__", inner)) if callable(inner) else inner
        call = getattr(call, "__func__", call)
        if inspect.isfunction(call):
            yield f"{owner.__name__}.{name}", typing.get_type_hints(call)
