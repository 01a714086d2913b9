import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

HEAVY = ("torch", "transformers", "faiss", "sentence_transformers")
# Each costs a tenth of a second or more, and most programs need none of them.
SLOW = ("alembic", "sqlalchemy.dialects.postgresql", "rich.progress", "numpy", "jinja2")


def _loaded_by(statement, names=HEAVY):
    program = f"{statement}\nimport sys; print([n for n in {names!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_importing_the_package_loads_no_model_library():
    """With every public name, each of which is imported when it is first used."""
    assert _loaded_by("from agentmem import *\nimport agentmem.testing") == "[]"


def test_importing_the_package_alone_loads_no_database_library():
    assert _loaded_by("import agentmem", ("sqlalchemy", "typer", "rich")) == "[]"


def test_importing_the_retrieval_loads_no_model_library():
    assert _loaded_by("import agentmem.retrieval") == "[]"


def test_retrieval_by_words_alone_needs_no_torch():
    by_words = "from agentmem.retrieval import HybridRetriever; HybridRetriever()"
    assert _loaded_by(by_words, ("torch", "transformers", "sentence_transformers")) == "[]"


def test_the_command_line_starts_without_a_model_library():
    assert _loaded_by("import agentmem.cli") == "[]"


def test_importing_the_package_loads_no_migrations_and_no_other_dialect():
    assert _loaded_by("from agentmem import *\nimport agentmem.cli", SLOW) == "[]"


def test_opening_a_database_that_is_up_to_date_loads_no_migrations(tmp_path):
    open_it = (
        f"from agentmem import Memory; Memory.open('sqlite:///{tmp_path / 'agent.db'}').close()"
    )
    assert "alembic" in _loaded_by(open_it, SLOW)

    assert _loaded_by(open_it, SLOW) == "[]"


RECORD_FORK_HOOKS = """
import os, sys
register, found = os.register_at_fork, []

def recorded(**hooks):
    name = sys._getframe(1).f_globals["__name__"]
    found.extend([name] if name.startswith("agentmem") else [])
    register(**hooks)

os.register_at_fork = recorded
import agentmem.inference, agentmem.memory, agentmem.testing
import agentmem.retrieval.dense.sentence_embedder
print(found)
agentmem.Memory.open("sqlite://", counter=agentmem.testing.WordCounter()).close()
print(found)
"""


def test_a_program_that_only_imports_it_has_no_fork_hooks_of_it():

    done = subprocess.run(
        [sys.executable, "-c", RECORD_FORK_HOOKS], capture_output=True, text=True, check=True
    )

    assert done.stdout.splitlines() == ["[]", "['agentmem.machine.forks']"]
