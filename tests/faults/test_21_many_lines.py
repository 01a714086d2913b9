"""Many lines, and many who begin them at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import event

from agentmem import Budget, Memory
from agentmem.testing import ScriptedModel, WordCounter
from tests.store.conftest import (  # noqa: F401 - fixtures
    postgres,
    postgres_url,
    shared_url,
)
from tests.store.invariants import check

BUDGET = Budget(context=300, reply=40)


@pytest.fixture
def model():
    return ScriptedModel([f"answer {number}" for number in range(5000)])


def say_four(session):
    session.append("user", "one")
    session.append("assistant", "uno")
    session.append("user", "two")
    session.append("assistant", "dos")


def test_edits_of_two_processes_at_once_are_both_kept(shared_url):  # noqa: F811 - a fixture
    def edit(number):
        with Memory.open(shared_url, counter=WordCounter()) as memory:
            memory.session("s").edit(2, f"edit {number}")

    with Memory.open(shared_url, counter=WordCounter()) as memory:
        session = memory.session("s")
        say_four(session)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(edit, range(4)))

        lines = session.branches()[1:]
        ends = {session.history(line.id).messages()[-1].message.text for line in lines}
        assert ends == {f"edit {number}" for number in range(4)}
        assert session.switch().id == memory.session("s").branch.id != session.info.main
        check(memory._store)


def num_statements(memory, work):
    found = []
    engine = memory._store.database.engine

    def count(*_):
        found.append(1)

    event.listen(engine, "before_cursor_execute", count)
    try:
        work()
    finally:
        event.remove(engine, "before_cursor_execute", count)
    return len(found)


@pytest.mark.slow
@pytest.mark.parametrize("is_chain", [False, True])
def test_a_thousand_lines_do_not_make_assembling_slow(model, is_chain):
    with Memory.open("sqlite://", model=model, budget=BUDGET) as memory:
        session = memory.session("s", user="u")
        session.append("user", "hello")
        session.branch(at=1)
        few = num_statements(memory, session.assemble)
        for number in range(300):
            session.append("assistant", f"answer {number}")
            if is_chain:
                session.append("user", f"more {number}")
                session.append("assistant", f"yes {number}")
            session.branch(at=session.branch.head - 1)
        memory.session("s", user="u").assemble()
        many = num_statements(memory, lambda: memory.session("s", user="u").pins())
        session.append("user", "and now")
        num_shown = len(session.assemble().messages)
        session.append("assistant", "so")
        settled = num_statements(memory, session.assemble)

        assert many <= 8
        # Each line in the window is read by itself, and none that is not.
        assert settled <= few + num_shown
        assert session.check() == ()
