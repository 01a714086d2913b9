"""
The real model, loaded once per run, and how Hypothesis works.

Where ``CI`` is set it tries the same examples each time, so that a change is judged by what it
changes; elsewhere other ones each time. A slow machine is no failure.
"""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from agentmem.config import InferenceConfig
from agentmem.store.database import alembic_runner
from tests import fast, tables

settings.register_profile("agentmem", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "agentmem")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="run the tests of `make fast`")


def pytest_configure() -> None:
    fast.notice_processes()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    fast.choose(items)
    if config.getoption("--fast"):
        left_out = [item for item in items if not item.stash[fast.IS_FAST]]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.stash[fast.IS_FAST]]


@pytest.fixture(autouse=True)
def _fast_tests_are_fast(request: pytest.FixtureRequest) -> Iterator[None]:
    yield from fast.watched(request.node)


@pytest.fixture(autouse=True, scope="session")
def _tables_at_once() -> Iterator[None]:
    """Make new SQLite databases from the SQL that the migrations come to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alembic_runner, "move", tables.move)
        yield


@pytest.fixture
def every_migration(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new databases go through all migrations, for tests of those."""
    monkeypatch.setattr(alembic_runner, "move", tables.migrated)


@pytest.fixture(scope="session")
def real_model() -> Iterator["LocalModel"]:  # noqa: F821 - torch is imported by who needs it
    """SmolLM2 in the dtype that is fast here."""
    from agentmem.inference import LocalModel  # noqa: PLC0415 - heavy: only for tests that ask

    with LocalModel.load() as model:
        yield model


@pytest.fixture(scope="session")
def real_model_fp32() -> Iterator["LocalModel"]:  # noqa: F821 - torch is imported by who needs it
    """SmolLM2 in float32, for tests that compare tokens."""
    from agentmem.inference import LocalModel  # noqa: PLC0415 - heavy: only for tests that ask

    with LocalModel.load(config=InferenceConfig(dtype="float32", device="cpu")) as model:
        yield model
