"""Many writers of one session, and writers that die."""

import os
from functools import partial

import pytest

from agentmem.errors import ConflictError
from agentmem.store import Store
from agentmem.types import BranchState, Inherit
from tests.builders import call, result, say
from tests.store.invariants import check
from tests.store.processes import finish, numbers_until_killed, run_together, start

APPEND_MANY = """
import sys
from agentmem.store import Store
from agentmem.types import BranchId, Message, Role, Scope, TextPart

url, branch, name, number = sys.argv[1:]
scope = Scope(namespace="tests", user="u42")
with Store.open(url) as store:
    for turn in range(int(number)):
        said = Message(role=Role.USER, parts=(TextPart(text=f"{name}-{turn}"),))
        for _ in range(2):  # each append is retried, as after a lost answer
            store.messages.append(scope, BranchId(int(branch)), [said], client_key=f"{name}-{turn}")
"""
KILLS = 50


@pytest.mark.slow
def test_processes_lose_double_and_reorder_nothing(shared_url, scope):
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
        names = [f"writer{number}" for number in range(4)]

        for process in [start(APPEND_MANY, shared_url, main, name, 50) for name in names]:
            finish(process, timeout=120)

        stored = store.messages.read(scope, main)
        texts = [item.message.text for item in stored]
        assert [item.position for item in stored] == list(range(1, 201))
        for name in names:
            own = [text for text in texts if text.startswith(f"{name}-")]
            assert own == [f"{name}-{turn}" for turn in range(50)]
        check(store)


@pytest.mark.slow
def test_writers_of_different_branches_and_pins_do_not_deadlock(shared_url, scope):
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main

        def work(number):
            for turn in range(15):
                store.messages.append(scope, main, [say("user", f"{number}")])
                task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=turn)
                store.messages.append(scope, task.id, [call("1")])
                store.pins.set(scope, task.id, f"k{turn % 3}", f"{number}-{turn}")
                store.sessions.set_state(
                    scope, task.id, expected=BranchState.OPEN, state=BranchState.ENDED
                )

        assert run_together(*(partial(work, number) for number in range(4))) == []
        assert store.sessions.branch(scope, main).head == 60
        check(store)


def test_one_of_many_wins_a_compare_and_set(shared_url, scope):
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
        store.pins.set(scope, main, "count", "0")
        outcomes = []

        def work(number):
            for version in range(1, 11):
                try:
                    store.pins.set(
                        scope, main, "count", f"{number}-{version}", expected_version=version
                    )
                    outcomes.append(("won", version))
                except ConflictError:
                    outcomes.append(("lost", version))

        assert run_together(*(partial(work, number) for number in range(4))) == []

        won = [version for outcome, version in outcomes if outcome == "won"]
        assert len(won) == len(set(won))
        assert len(store.pins.history(scope, main, "count")) == 1 + len(won)


@pytest.mark.slow
def test_a_killed_writer_leaves_what_was_acknowledged_and_nothing_half(shared_url, scope):
    """Each append is three messages of one number; a number is on the pipe once it is stored."""
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
    acknowledged = []
    for kill in range(KILLS):
        first = 1_000_000 * (kill + 1)
        acknowledged += numbers_until_killed(
            partial(_write_for_ever, shared_url, scope, main, first)
        )

    with Store.open(shared_url) as store:
        stored = store.messages.read(scope, main)
        check(store)

    numbers = [int(item.message.text) for item in stored if item.message.role == "user"]
    doubled = len(numbers) - len(set(numbers))
    half_written = len(stored) - 3 * len(numbers)
    present = len(set(acknowledged) & set(numbers))
    print(  # noqa: T201 - the figures, shown by pytest -s
        f"kills {KILLS}, acknowledged {len(acknowledged)}, present {present}, "
        f"doubled {doubled}, half-written {half_written}"
    )
    assert len(acknowledged) >= KILLS
    assert (present, doubled, half_written) == (len(acknowledged), 0, 0)


def _write_for_ever(url, scope, main, number, pipe):
    with Store.open(url) as store:
        while True:
            turn = [say("user", str(number)), call(str(number)), result(str(number))]
            store.messages.append(scope, main, turn, client_key=str(number))
            os.write(pipe, f"{number}\n".encode())
            number += 1
