import subprocess
import sys

HEAVY = ("torch", "transformers", "faiss", "sentence_transformers")


def _loaded_by(statement):
    program = f"{statement}\nimport sys; print([n for n in {HEAVY!r} if n in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def test_importing_the_package_loads_no_model_library():
    assert _loaded_by("import agentmem, agentmem.testing") == "[]"


def test_the_command_line_starts_without_a_model_library():
    assert _loaded_by("import agentmem.cli") == "[]"
