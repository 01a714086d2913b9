"""How `make docs` builds the site: Markdown pages, and the reference from docstrings."""

import logging
from importlib.metadata import version as version_of

from sphinx.application import Sphinx

import agentmem

project = "agentmem"
author = "the agentmem authors"
copyright = author  # noqa: A001 - Sphinx reads this name
release = version = version_of("agentmem-window")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "agentmem"
html_show_sphinx = False

# Headings can be linked to by their text: [the log](concepts.md#the-log-of-prompts).
myst_heading_anchors = 3

# `Name` in a docstring links to the reference where it is documented, and is code elsewhere.
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80

logging.getLogger("faiss").setLevel(logging.WARNING)  # says at INFO which kernels it has


def _skip_documented(
    app: Sphinx,
    what: str,
    _name: str,
    value: object,
    _skip: bool,  # noqa: FBT001 - autodoc calls it so
    _options: object,
) -> bool | None:
    """Skip a name that another page of the reference has: several packages export `Hit`."""
    if what != "module" or not isinstance(value, type):
        return None
    return _PAGE_OF.setdefault(value, app.env.docname) != app.env.docname or None


_PAGE_OF: dict[type, str] = {}

_SUBJECTS = {
    "memory": "Memory, sessions, replies",
    "config": "Settings",
    "types": "Messages, prompts, accounts",
    "context": "Policies and summaries",
    "protocols": "What you can implement, and its values",
    "store": "Results of exports and purges",
    "errors": "Errors",
}


def _list_names(_app: Sphinx, page: str, source: list[str]) -> None:
    """List the names of `agentmem` by the package that they come from."""
    if page != "reference/agentmem":
        return
    names: dict[str, list[str]] = {}
    for name in agentmem.__all__:
        home = getattr(agentmem, name).__module__.split(".")[1]
        names.setdefault(home, []).append(f"{{py:obj}}`{name} <agentmem.{name}>`")
    rows = [f"| {say} | {', '.join(names.pop(home, []))} |" for home, say in _SUBJECTS.items()]
    rows += [f"| {home} | {', '.join(found)} |" for home, found in names.items()]
    source[0] = source[0].replace("%NAMES%", "\n".join(["| subject | names |", "|---|---|", *rows]))


def setup(app: Sphinx) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("autodoc-skip-member", _skip_documented)
    app.connect("source-read", _list_names)
