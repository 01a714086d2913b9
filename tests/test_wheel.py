"""What is installed from a wheel, away from the checkout, does what the checkout does."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from agentmem.store import head

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
OFFLINE = ["--no-deps", "--no-index"]


def run(*command, folder, **environment):
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dist")
    build = [*PIP, "wheel", str(ROOT), "--no-build-isolation", *OFFLINE]
    run(*build, "--wheel-dir", str(folder), folder=folder)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Run a command with the wheel's package in front of the checkout's."""
    site = tmp_path_factory.mktemp("site")
    run(*PIP, "install", *OFFLINE, "--target", str(site), str(wheel), folder=site)

    def run_installed(*command, folder):
        return run(*command, folder=folder, PYTHONPATH=str(site))

    run_installed.site = site
    return run_installed


def test_the_wheel_holds_all_that_is_needed_and_nothing_else(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())

    migrations = {
        f"agentmem/{path.relative_to(ROOT).as_posix()}"
        for path in (ROOT / "migrations").rglob("*.py")
    }
    assert migrations | {"agentmem/py.typed"} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert [top for top in tops if not top.startswith("agentmem")] == []
    assert [name for name in names if "__pycache__" in name] == []


def test_the_installed_command_makes_and_lists_a_database(installed, tmp_path):
    where = "import agentmem; print(agentmem.__file__)"
    assert installed(sys.executable, "-c", where, folder=tmp_path).startswith(str(installed.site))
    command = str(installed.site / "bin" / "agentmem")
    database = ("--database", f"sqlite:///{tmp_path / 'agent.db'}")

    assert installed(command, "db", "upgrade", *database, folder=tmp_path) == f"empty → {head()}"
    assert installed(command, "db", "current", *database, folder=tmp_path) == head()
    assert "session" in installed(command, "sessions", *database, folder=tmp_path)
