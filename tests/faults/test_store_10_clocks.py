"""Clocks that go backwards: ages never do, and positions decide what came first."""

from datetime import UTC, datetime, timedelta

import pytest

from agentmem import Memory
from agentmem.store import Store
from agentmem.types import BranchState, Inherit, PinScope, Scope
from tests.builders import say
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401 - fixtures

SCOPE = Scope(namespace="default", user="default")
JUNE = datetime(2026, 6, 1, tzinfo=UTC)
APRIL = datetime(2025, 4, 27, tzinfo=UTC)


class Clock:
    def __init__(self):
        self.now = JUNE

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request, tmp_path, clock):
    of_file = f"sqlite:///{tmp_path / 'm.db'}"
    url = of_file if request.param == "sqlite" else request.getfixturevalue("new_postgres_url")
    with Store.open(url, clock=clock) as opened:
        yield opened


@pytest.fixture
def main(store):
    main = store.sessions.get_or_create(SCOPE, "trip").main
    store.messages.append(SCOPE, main, [say("user", "first")])
    return main


def updated_at(store):
    return store.sessions.get(SCOPE, "trip").updated_at


def append(store, main):
    store.messages.append(SCOPE, main, [say("user", "later")])


def append_many(store, main):
    store.messages.append(SCOPE, main, [say("user", "later"), say("user", "and later")])


def append_with_key(store, main):
    store.messages.append(SCOPE, main, [say("user", "later")], client_key="k")


def append_said_elsewhere(store, main):
    store.messages.append(
        SCOPE, main, [say("user", "later")], created_at=APRIL - timedelta(days=900)
    )


def end(store, main):
    store.sessions.set_state(SCOPE, main, expected=BranchState.OPEN, state=BranchState.ENDED)


@pytest.mark.parametrize(
    "change", [append, append_many, append_with_key, append_said_elsewhere, end]
)
def test_no_change_makes_a_session_older(store, main, clock, change):
    clock.now = APRIL
    change(store, main)

    assert updated_at(store) == JUNE
    assert store.retention.stale(JUNE - timedelta(days=1)) == ()


def test_deleting_the_last_active_subtask_makes_its_session_no_older(store, main, clock):
    task = store.sessions.fork(SCOPE, main, name="task", inherit=Inherit.ALL, at=1)
    clock.now = JUNE + timedelta(days=5)
    store.messages.append(SCOPE, task.id, [say("user", "in the task")])
    store.deletion.branch(SCOPE, task.id)

    assert updated_at(store) == JUNE + timedelta(days=5)


def test_pins_of_a_position_are_those_that_were_set_before_it(store, main, clock):
    store.pins.set(SCOPE, main, "role", "before 2")
    store.messages.append(SCOPE, main, [say("user", "second")])
    clock.now = APRIL
    store.pins.set(SCOPE, main, "role", "after 2")
    store.pins.set(SCOPE, main, "limit", "after 2")
    store.pins.set(SCOPE, main, "user", "after 2", pin_scope=PinScope.USER)
    store.messages.append(SCOPE, main, [say("user", "third")])
    first, second, third = store.messages.read(SCOPE, main)

    def texts(message):
        return [pin.text for pin in store.pins.visible(SCOPE, main, before=message)]

    assert texts(first) == []
    assert texts(second) == ["before 2"]
    assert texts(third) == ["after 2", "after 2", "after 2"]


def test_a_moment_shows_nothing_that_was_stored_behind_it(store, main, clock):
    clock.now = APRIL
    store.messages.append(SCOPE, main, [say("user", "second")])
    task = store.sessions.fork(SCOPE, main, name="task", inherit=Inherit.ALL, at=2)
    store.messages.append(SCOPE, task.id, [say("user", "third")])

    assert store.messages.head_at(SCOPE, main, JUNE) == 1
    assert store.messages.head_at(SCOPE, task.id, JUNE) == 1
    assert store.messages.head_at(SCOPE, task.id, JUNE + timedelta(days=1)) == 3
    assert store.messages.head_at(SCOPE, task.id, APRIL) == 0


def test_an_import_keeps_which_pins_a_position_had(tmp_path, clock):
    path = tmp_path / "export.jsonl"
    with Store.open("sqlite://", clock=clock) as store:
        other = store.sessions.get_or_create(SCOPE, "other").main
        store.messages.append(SCOPE, other, [say("user", "x")] * 3)
        main = store.sessions.get_or_create(SCOPE, "trip").main
        store.messages.append(SCOPE, main, [say("user", "first")])
        clock.now = APRIL
        store.pins.set(SCOPE, main, "role", "between")
        store.messages.append(SCOPE, main, [say("user", "second")])
        store.transfer.export(path, scope=SCOPE)
    with Memory.open("sqlite://") as memory:
        memory.load(path)
        trip = memory.find("trip")

        assert trip.at(1).pins() == ()
        assert [pin.text for pin in trip.at(2).pins()] == ["between"]
