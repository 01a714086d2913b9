import threading
from datetime import UTC, datetime, timedelta
from itertools import count, product

import pytest

from agentmem.errors import (
    ConflictError,
    InvalidInputError,
    InvalidTextError,
    SessionNotFoundError,
)
from agentmem.store import Store
from agentmem.types import BranchState, Inherit, Scope
from tests.builders import say

NAMES = [
    "a",
    "A",
    "a ",
    "a/b",
    "a:b",
    "a%2Fb",
    "%s",
    "a'b",
    'a"b',
    "a\\b",
    "a\nb",
    "a;--",
    "\u00e9",
    "e\u0301",
    "👩‍👩‍👧‍👦",
    "🙂" * 500,
    "🙂" * 499 + "u",
    "ws\u2028",
    "1",
    "01",
    "null",
]


def test_a_session_is_made_once(store, scope):
    first = store.sessions.get_or_create(scope, "trip")

    assert store.sessions.get_or_create(scope, "trip") == first
    assert store.sessions.get(scope, "trip") == first
    assert (first.key, first.scope, first.num_messages) == ("trip", scope, 0)


def test_a_session_that_is_not_there_is_not_made_by_asking(store, scope):
    with pytest.raises(SessionNotFoundError, match="'trip'"):
        store.sessions.get(scope, "trip")

    assert store.sessions.list(scope) == ()


def test_hostile_names_never_meet(store):
    scopes = [Scope(namespace=a, user=b) for a, b in product(NAMES[:6], NAMES)]
    made = {
        store.sessions.get_or_create(scope, key).id
        for scope, key in zip(scopes, NAMES * 6, strict=True)
    }

    assert len(made) == len(scopes)
    for scope, key in zip(scopes, NAMES * 6, strict=True):
        assert [info.key for info in store.sessions.list(scope)] == [key]


def test_every_hostile_key_is_its_own_session(store, scope):
    made = {key: store.sessions.get_or_create(scope, key).id for key in NAMES}

    assert len(set(made.values())) == len(NAMES)
    assert {info.key: info.id for info in store.sessions.list(scope)} == made


def test_names_that_would_join_alike_are_told_apart(store):
    one = store.sessions.get_or_create(Scope(namespace="a", user="bc"), "k")
    other = store.sessions.get_or_create(Scope(namespace="ab", user="c"), "k")

    assert one.id != other.id


@pytest.mark.parametrize("key", ["", "x" * 501])
def test_a_key_has_1_to_500_characters(store, scope, key):
    with pytest.raises(InvalidInputError):
        store.sessions.get_or_create(scope, key)


@pytest.mark.parametrize("key", ["a\0", "\ud83d", "\ud83d\ude00"])
def test_a_key_that_not_every_database_holds_is_refused(store, scope, key):
    with pytest.raises(InvalidTextError):
        store.sessions.get_or_create(scope, key)


def test_sessions_are_listed_by_their_newest_activity(url, scope):
    minutes = count()

    def clock():
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=next(minutes))

    with Store.open(url, clock=clock) as store:
        first = store.sessions.get_or_create(scope, "first")
        store.sessions.get_or_create(scope, "second")
        store.messages.append(scope, first.main, [say("user", "hello")])

        listed = store.sessions.list(scope)

    assert [info.key for info in listed] == ["first", "second"]
    assert listed[0].updated_at > listed[0].created_at


def test_the_count_of_a_session_is_that_of_all_branches(store, scope, main, append):
    append("a", "b")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=2)
    append("c", branch=task.id)

    assert store.sessions.get(scope, "trip").num_messages == 3


def test_a_fork_leaves_its_parent_as_it_was(store, scope, main, append):
    append("a", "b")
    before = store.sessions.branch(scope, main)

    task = store.sessions.fork(scope, main, name="compare", inherit=Inherit.PINS, at=1)

    assert (task.parent, task.forked_at, task.head, task.name) == (main, 1, 1, "compare")
    assert (task.inherit, task.state) == (Inherit.PINS, BranchState.OPEN)
    assert store.sessions.branch(scope, main) == before
    assert store.sessions.branches(scope, before.session_id) == (before, task)


@pytest.mark.parametrize("at", [-1, 3, 2**70])
def test_a_fork_needs_a_position_of_its_parent(store, scope, main, append, at):
    append("a", "b")

    with pytest.raises(InvalidInputError, match="up to 2"):
        store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=at)


def test_a_state_changes_only_from_the_expected_one(store, scope, main):
    ended = store.sessions.set_state(
        scope, main, expected=BranchState.OPEN, state=BranchState.ENDED
    )

    assert ended.state is BranchState.ENDED
    with pytest.raises(ConflictError, match="ended"):
        store.sessions.set_state(
            scope, main, expected=BranchState.OPEN, state=BranchState.DISCARDED
        )
    assert store.sessions.branch(scope, main).state is BranchState.ENDED


def test_an_id_alone_opens_nothing(store, scope, main):
    session_id = store.sessions.branch(scope, main).session_id
    for other in (Scope(namespace="x", user=scope.user), Scope(namespace=scope.namespace)):
        with pytest.raises(SessionNotFoundError):
            store.sessions.branch(other, main)
        with pytest.raises(SessionNotFoundError):
            store.sessions.branches(other, session_id)
        with pytest.raises(SessionNotFoundError):
            store.sessions.fork(other, main, name="t", inherit=Inherit.ALL, at=0)
        with pytest.raises(SessionNotFoundError):
            store.sessions.set_state(
                other, main, expected=BranchState.OPEN, state=BranchState.ENDED
            )


def test_threads_that_make_the_same_session_get_the_same_one(store, scope):
    ids = []
    barrier = threading.Barrier(8)

    def make():
        barrier.wait()
        ids.append(store.sessions.get_or_create(scope, "raced").main)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(ids) == 8
    assert len(set(ids)) == 1
