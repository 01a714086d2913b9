"""What operating a database needs of the command line, and limits that bind."""

import json

import pytest

from agentmem.config import DatabaseConfig
from agentmem.errors import ConfigError
from agentmem.memory import Memory
from tests.cli.command import agentmem


def test_a_branch_is_shown_as_json_and_nothing_is_cut(tmp_path):
    url, key = f"sqlite:///{tmp_path / 'm.db'}", "k" * 190
    config = DatabaseConfig(pool_size=1, max_overflow=0, lock_timeout_s=5.0)
    with Memory.open(url, database=config) as memory:
        session = memory.session(key)
        session.append("user", "on main")
        with session.subtask("look") as task:
            task.append("user", "in the subtask")
            number = str(task.branch.id)

    shown = agentmem("show", key, "-d", url, "--branch", number, "--json")
    listed = agentmem("sessions", "-d", url)

    assert "in the subtask" in json.dumps(json.loads(shown.stdout)["messages"])
    assert key in listed.stdout
    assert agentmem("--version").stdout.strip()


@pytest.mark.parametrize("bad", [{"pool_size": 0}, {"lock_timeout_s": -1}, {"max_overflow": 1.5}])
def test_limits_that_cannot_work_are_refused(bad):
    with pytest.raises(ConfigError):
        DatabaseConfig(**bad)
