"""Ending a branch and handing back what it promoted is one step."""

import os
import threading
import time
from contextlib import suppress
from functools import partial

import pytest
from sqlalchemy import update

from agentmem.errors import (
    ConflictError,
    InvalidInputError,
    SessionNotFoundError,
    TranscriptError,
)
from agentmem.store import Store
from agentmem.store.database.schema import BranchRow
from agentmem.types import BranchId, BranchState, Inherit, Origin, Scope
from tests.builders import call, result, say
from tests.store.invariants import check
from tests.store.processes import numbers_until_killed, run_together

KILLS = 15


@pytest.fixture
def fork(store, scope):
    def fork_off(parent, name="task"):
        at = store.sessions.branch(scope, parent).head
        return store.sessions.fork(scope, parent, name=name, inherit=Inherit.ALL, at=at).id

    return fork_off


def texts(store, scope, branch):
    return [item.message.text for item in store.messages.read(scope, branch)]


def end(store, scope, branch, state=BranchState.ENDED):
    store.sessions.set_state(scope, branch, expected=BranchState.OPEN, state=state)


def test_a_merge_appends_to_the_parent_and_ends_the_branch(store, scope, main, append, fork):
    append("a")
    task = fork(main)
    append("scratch", branch=task)

    merged = store.messages.merge(scope, task, [say("assistant", "x"), say("assistant", "y")])

    assert merged == store.messages.read(scope, main, 2)
    assert [(item.position, item.origin) for item in merged] == [
        (2, Origin.PROMOTED),
        (3, Origin.PROMOTED),
    ]
    assert texts(store, scope, main) == ["a", "x", "y"]
    assert texts(store, scope, task) == ["a", "scratch"]
    assert store.sessions.branch(scope, task).state is BranchState.ENDED
    check(store)


def test_a_result_answers_the_open_call_of_the_parent(store, scope, main, append, fork):
    append("a")
    task = fork(main)
    append(call("1"))

    (answer,) = store.messages.merge(scope, task, [result("1", "x")])

    assert answer.position == 3
    assert store.messages.append(scope, main, [say("user", "next")])[0].position == 4
    check(store)


def test_a_second_result_is_handed_back_as_what_it_is(store, scope, main, append, fork):
    append(call("1"), result("1"))
    task = fork(main)

    kept = store.messages.merge(scope, task, [say("assistant", "x"), result("1")])

    assert [(one.position, one.origin) for one in kept] == [
        (3, Origin.PROMOTED),
        (4, Origin.PROMOTED),
    ]
    with pytest.raises(TranscriptError, match="has its result"):
        append(result("1"))
    check(store)


def test_what_is_handed_back_does_not_close_the_open_call_of_the_parent(
    store, scope, main, append, fork
):
    append("a")
    task = fork(main)
    append(call("1"))

    (said,) = store.messages.merge(scope, task, [say("assistant", "x")])
    (answer,) = append(result("1"))

    assert (said.origin, answer.origin) == (Origin.PROMOTED, Origin.SAID)
    check(store)


def test_without_messages_only_the_state_changes(store, scope, main, append, fork):
    append("a")
    task = fork(main)
    end(store, scope, main)

    assert store.messages.merge(scope, task, []) == ()

    assert store.sessions.branch(scope, task).state is BranchState.ENDED
    assert store.sessions.branch(scope, main).head == 1


@pytest.mark.parametrize("state", [BranchState.ENDED, BranchState.DISCARDED])
def test_a_branch_that_is_not_open_hands_back_nothing(store, scope, main, fork, state):
    task = fork(main)
    end(store, scope, task, state)

    with pytest.raises(ConflictError, match="not open"):
        store.messages.merge(scope, task, [say("assistant", "x")])

    assert texts(store, scope, main) == []
    assert store.sessions.branch(scope, task).state is state


def test_a_second_merge_is_refused(store, scope, main, fork):
    task = fork(main)
    store.messages.merge(scope, task, [say("assistant", "x")])

    with pytest.raises(ConflictError):
        store.messages.merge(scope, task, [say("assistant", "x")])

    assert texts(store, scope, main) == ["x"]


def test_an_ended_parent_leaves_the_branch_open(store, scope, main, fork):
    task = fork(main)
    end(store, scope, main)

    with pytest.raises(ConflictError, match="nothing can be appended"):
        store.messages.merge(scope, task, [say("assistant", "x")])

    assert store.sessions.branch(scope, task).state is BranchState.OPEN
    assert texts(store, scope, main) == []


@pytest.mark.parametrize(
    ("message", "error"),
    [(say("system", "x"), InvalidInputError), (result(None), TranscriptError)],
    ids=["system", "result of no call"],
)
def test_what_the_parent_cannot_take_leaves_both_as_they_were(  # noqa: PLR0913, PLR0917 - fixtures
    store, scope, main, append, fork, message, error
):
    append(call("1"), result("1"))
    task = fork(main)

    with pytest.raises(error):
        store.messages.merge(scope, task, [say("assistant", "x"), message])

    assert store.sessions.branch(scope, task).state is BranchState.OPEN
    assert store.sessions.branch(scope, main).head == 2
    check(store)


def test_a_main_branch_has_no_parent(store, scope, main):
    with pytest.raises(InvalidInputError, match="no parent"):
        store.messages.merge(scope, main, [])

    assert store.sessions.branch(scope, main).state is BranchState.OPEN


def test_nobody_merges_the_branch_of_another_user(store, scope, main, fork):
    task = fork(main)
    for stranger in (Scope(namespace="tests", user="other"), Scope(namespace="x", user="u42")):
        with pytest.raises(SessionNotFoundError):
            store.messages.merge(stranger, task, [say("assistant", "x")])
    with pytest.raises(SessionNotFoundError):
        store.messages.merge(scope, BranchId(10**6), [])

    assert store.sessions.branch(scope, task).state is BranchState.OPEN


def test_nested_branches_hand_back_to_their_own_parents(store, scope, main, append, fork):
    append("a")
    outer = fork(main)
    inner = fork(outer)

    store.messages.merge(scope, inner, [say("assistant", "deep")])
    store.messages.merge(scope, outer, [say("assistant", "high")])

    assert texts(store, scope, outer) == ["a", "deep"]
    assert texts(store, scope, main) == ["a", "high"]
    check(store)


def test_siblings_and_nested_branches_that_end_at_once_lose_nothing(store, scope, main, fork):
    """Each thread has an outer and an inner branch; appends to main go on meanwhile."""
    number = 4
    outers = [fork(main, f"outer{index}") for index in range(number)]
    inners = [fork(outer, "inner") for outer in outers]

    def work(index):
        mine = [say("assistant", f"{index}-{part}") for part in range(3)]
        if index % 2:
            store.messages.merge(scope, inners[index], mine)
        store.messages.append(scope, main, [say("user", f"said {index}")])
        store.messages.merge(scope, outers[index], mine)
        if not index % 2:
            with pytest.raises(ConflictError):
                store.messages.merge(scope, inners[index], mine)

    assert run_together(*(partial(work, index) for index in range(number))) == []

    said = texts(store, scope, main)
    assert len(said) == 4 * number
    for index in range(number):
        place = said.index(f"{index}-0")
        assert said[place : place + 3] == [f"{index}-{part}" for part in range(3)]
    check(store)


def test_one_of_many_ends_a_branch(store, scope, main, fork):
    task = fork(main)
    outcomes = []

    def work(index):
        try:
            store.messages.merge(scope, task, [say("assistant", f"{index}")])
            outcomes.append(index)
        except ConflictError:
            outcomes.append(None)

    assert run_together(*(partial(work, index) for index in range(4))) == []

    (winner,) = [index for index in outcomes if index is not None]
    assert len(outcomes) == 4
    assert texts(store, scope, main) == [str(winner)]


def test_a_merge_waits_for_whoever_ends_the_branch_and_then_finds_it_ended(
    store, scope, main, fork
):
    task = fork(main)
    has_written = threading.Event()

    def discard_slowly(connection):
        discarded = {"state": BranchState.DISCARDED.value}
        connection.execute(update(BranchRow).where(BranchRow.id == task).values(discarded))
        has_written.set()
        time.sleep(0.3)  # the merge has begun by now, and must not have decided

    def merge():
        assert has_written.wait(20)
        with pytest.raises(ConflictError):
            store.messages.merge(scope, task, [say("assistant", "x")])

    assert run_together(lambda: store.database.write(discard_slowly), merge) == []

    assert store.sessions.branch(scope, task).state is BranchState.DISCARDED
    assert texts(store, scope, main) == []


def test_branches_can_be_deleted_while_they_end(store, scope, main, fork):
    """Both lock more than one branch; neither may wait for the other for ever."""
    tasks = [fork(main) for _ in range(6)]
    inners = [fork(task) for task in tasks]

    def merge():
        for inner in inners:
            with suppress(SessionNotFoundError):  # it was deleted first
                store.messages.merge(scope, inner, [say("assistant", "x")])

    def delete():
        for task in tasks:
            store.deletion.branch(scope, task)

    assert run_together(merge, delete) == []
    check(store)


@pytest.mark.slow
def test_a_killed_merge_leaves_all_or_nothing(shared_url, scope):
    """A number is on the pipe once its branch was merged; each hands back three messages."""
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
    acknowledged = []
    for kill in range(KILLS):
        first = 1_000_000 * (kill + 1)
        acknowledged += numbers_until_killed(
            partial(_merge_for_ever, shared_url, scope, main, first)
        )

    with Store.open(shared_url) as store:
        check(store)
        said = texts(store, scope, main)
        (session,) = store.sessions.list(scope)
        branches = store.sessions.branches(scope, session.id)[1:]
    ended = [branch.name for branch in branches if branch.state is BranchState.ENDED]
    assert said == [name for name in sorted(ended, key=int) for _ in range(3)]
    assert set(map(str, acknowledged)) <= set(ended)
    assert len(acknowledged) >= KILLS


def _merge_for_ever(url, scope, main, number, pipe):
    with Store.open(url) as store:
        while True:
            task = store.sessions.fork(scope, main, name=str(number), inherit=Inherit.PINS, at=0)
            store.messages.merge(scope, task.id, [say("assistant", str(number))] * 3)
            os.write(pipe, f"{number}\n".encode())
            number += 1
