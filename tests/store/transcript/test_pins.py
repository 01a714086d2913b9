from datetime import UTC, datetime

import pytest

from agentmem.errors import (
    ConflictError,
    InvalidInputError,
    PinNotFoundError,
    SessionNotFoundError,
)
from agentmem.store import Store
from agentmem.types import Inherit, PinScope, Scope
from tests.builders import say

HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(24)]


@pytest.fixture
def pins(store):
    return store.pins


def texts(pins):
    return [pin.text for pin in pins]


def test_a_pin_is_kept_byte_for_byte(pins, scope, main):
    text = " Never exceed 500 €.\n\t"

    pin = pins.set(scope, main, "limit", text)

    assert pins.visible(scope, main) == (pin,)
    assert (pin.text, pin.version, pin.scope, pin.author) == (text, 1, PinScope.SESSION, "user")


def test_a_change_is_a_new_version_in_the_same_place(pins, scope, main):
    pins.set(scope, main, "a", "1")
    pins.set(scope, main, "b", "2")

    changed = pins.set(scope, main, "a", "3", author="model")

    assert changed.version == 2
    assert texts(pins.visible(scope, main)) == ["3", "2"]
    assert [(p.version, p.author) for p in pins.history(scope, main, "a")] == [
        (1, "user"),
        (2, "model"),
    ]


def test_the_same_text_is_no_change(pins, scope, main):
    first = pins.set(scope, main, "a", "1")

    assert pins.set(scope, main, "a", "1", author="other") == first
    assert pins.history(scope, main, "a") == (first,)


def test_a_stale_version_changes_nothing(pins, scope, main):
    pins.set(scope, main, "a", "1", expected_version=0)
    pins.set(scope, main, "a", "2", expected_version=1)

    with pytest.raises(ConflictError, match="version 2, not 1"):
        pins.set(scope, main, "a", "3", expected_version=1)
    with pytest.raises(ConflictError, match="version 2, not 0"):
        pins.remove(scope, main, "a", expected_version=0)

    assert texts(pins.visible(scope, main)) == ["2"]


def test_a_removed_pin_is_gone_from_prompts_and_not_from_history(pins, scope, main):
    pins.set(scope, main, "a", "1")

    pins.remove(scope, main, "a")
    pins.remove(scope, main, "a")

    assert pins.visible(scope, main) == ()
    assert [(p.version, p.text, p.is_removed) for p in pins.history(scope, main, "a")] == [
        (1, "1", False),
        (2, "", True),
    ]


def test_a_pin_that_comes_back_stands_where_it_stood(pins, scope, main):
    for key in "ab":
        pins.set(scope, main, key, key)
    pins.remove(scope, main, "a")

    again = pins.set(scope, main, "a", "a")

    assert again.version == 3
    assert texts(pins.visible(scope, main)) == ["a", "b"]


def test_a_pin_that_never_was_cannot_be_removed(pins, scope, main):
    with pytest.raises(PinNotFoundError):
        pins.remove(scope, main, "a")
    with pytest.raises(PinNotFoundError):
        pins.history(scope, main, "a")


@pytest.mark.parametrize(("key", "text"), [("", "x"), ("k" * 501, "x"), ("a", ""), ("a", " \n")])
def test_a_pin_needs_a_key_and_a_text(pins, scope, main, key, text):
    with pytest.raises(InvalidInputError):
        pins.set(scope, main, key, text)


def test_pins_come_from_the_outermost_scope_inwards(store, pins, scope, main):
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.PINS, at=0).id
    pins.set(scope, task, "b2", "task", pin_scope=PinScope.BRANCH)
    pins.set(scope, main, "b1", "main", pin_scope=PinScope.BRANCH)
    pins.set(scope, task, "s", "session")
    pins.set(scope, main, "u", "user", pin_scope=PinScope.USER)

    assert texts(pins.visible(scope, task)) == ["user", "session", "main", "task"]
    assert texts(pins.visible(scope, main)) == ["user", "session", "main"]


def test_an_inner_pin_takes_the_place_of_the_outer_one(store, pins, scope, main):
    pins.set(scope, main, "role", "guide", pin_scope=PinScope.USER)
    pins.set(scope, main, "limit", "500")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.PINS, at=0).id
    pins.set(scope, task, "role", "critic", pin_scope=PinScope.BRANCH)

    assert texts(pins.visible(scope, task)) == ["critic", "500"]
    assert texts(pins.visible(scope, main)) == ["guide", "500"]
    pins.remove(scope, task, "role", pin_scope=PinScope.BRANCH)
    assert texts(pins.visible(scope, task)) == ["guide", "500"]


def test_siblings_do_not_see_each_others_pins(store, pins, scope, main):
    tasks = [
        store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=0).id for _ in range(2)
    ]
    pins.set(scope, tasks[0], "a", "1", pin_scope=PinScope.BRANCH)

    assert pins.visible(scope, tasks[1]) == ()


def test_a_users_pins_are_in_all_sessions_of_that_user_alone(store, pins, scope, main):
    pins.set(scope, main, "name", "Ann", pin_scope=PinScope.USER)
    mine = store.sessions.get_or_create(scope, "other").main
    stranger = Scope(namespace=scope.namespace, user="u43")
    theirs = store.sessions.get_or_create(stranger, "trip").main

    assert texts(pins.visible(scope, mine)) == ["Ann"]
    assert pins.visible(stranger, theirs) == ()
    with pytest.raises(SessionNotFoundError):
        pins.set(stranger, main, "name", "Eve")
    with pytest.raises(SessionNotFoundError):
        pins.visible(stranger, main)


def test_an_undo_brings_the_version_before_back(pins, scope, main):
    pins.set(scope, main, "a", "1")
    pins.set(scope, main, "a", "2")

    undone = pins.undo(scope, main, "a")

    assert (undone.version, undone.text) == (3, "1")
    assert pins.undo(scope, main, "a").text == "2"


def test_an_undo_of_the_first_version_takes_the_pin_away(pins, scope, main):
    pins.set(scope, main, "a", "1")

    assert pins.undo(scope, main, "a").is_removed
    assert pins.visible(scope, main) == ()
    assert pins.undo(scope, main, "a").text == "1"
    with pytest.raises(PinNotFoundError):
        pins.undo(scope, main, "b")


def test_pins_and_messages_are_found_as_of_a_moment(url, scope):
    hours = iter(range(24))
    with Store.open(url, clock=lambda: HOURS[next(hours)]) as store:
        main = store.sessions.get_or_create(scope, "trip").main  # 0
        store.pins.set(scope, main, "a", "1")  # 1
        store.messages.append(scope, main, [say("user", "x")])  # 2
        store.pins.set(scope, main, "a", "2")  # 3
        store.messages.append(scope, main, [say("user", "y")])  # 4
        task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=1).id  # 5
        store.messages.append(scope, task, [say("user", "z")])  # 6

        said = store.messages.read(scope, main)
        shown = [texts(store.pins.visible(scope, main, before=one)) for one in said]
        heads = [store.messages.head_at(scope, main, hour) for hour in HOURS[:6]]
        of_task = [store.messages.head_at(scope, task, hour) for hour in HOURS[1:8]]

        assert shown == [["1"], ["2"]]
        assert heads == [0, 0, 1, 1, 2, 2]
        assert of_task == [0, 1, 1, 1, 1, 2, 2]
        with pytest.raises(InvalidInputError, match="time zone"):
            store.messages.head_at(scope, main, HOURS[0].replace(tzinfo=None))
