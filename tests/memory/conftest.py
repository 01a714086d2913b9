import pytest

from agentmem.config import Budget
from agentmem.memory import Memory
from agentmem.testing import ScriptedModel


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'agent.db'}"


@pytest.fixture
def model():
    return ScriptedModel()


@pytest.fixture
def budget():
    return Budget(context=120, reply=20)


@pytest.fixture
def memory(url, model, budget):
    with Memory.open(url, model=model, budget=budget) as opened:
        yield opened


@pytest.fixture
def session(memory):
    return memory.session("trip", user="u42")
