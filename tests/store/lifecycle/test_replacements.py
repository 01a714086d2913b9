from dataclasses import replace

import pytest
from sqlalchemy import text

from agentmem.errors import (
    ConflictError,
    InvalidInputError,
    ReplacementNotFoundError,
    SessionNotFoundError,
)
from agentmem.types import Inherit, ReplacementAuthor, Scope

RULE = ReplacementAuthor.RULE


@pytest.fixture
def replacements(store, append):
    append("the meeting is on Thursday", "ok", "the meeting is on Friday", "fine")
    return store.replacements


def pairs(replacements, scope, branch, **options):
    return [(one.old, one.new) for one in replacements.visible(scope, branch, **options)]


def fork(store, scope, main, at, inherit=Inherit.ALL):
    return store.sessions.fork(scope, main, name="t", inherit=inherit, at=at).id


def problems(store, scope, main):
    session = store.sessions.branch(scope, main).session_id
    return [one.problem for one in store.heads.verify(scope, session, integrity=True)]


def test_a_replacement_is_kept_with_both_messages_and_its_author(store, replacements, scope, main):
    one = replacements.add(scope, main, 1, 3)

    assert replacements.visible(scope, main) == (one,)
    assert (one.old, one.new, one.author) == (1, 3, ReplacementAuthor.CALLER)
    assert len(store.messages.read(scope, main)) == 4
    assert problems(store, scope, main) == []


def test_the_same_replacement_again_is_no_change(replacements, scope, main):
    one = replacements.add(scope, main, 1, 3)

    assert replacements.add(scope, main, 1, 3, author=RULE) == one
    assert replacements.visible(scope, main) == (one,)


def test_a_rule_does_not_change_what_a_message_was_replaced_by_and_a_caller_does(
    store, replacements, scope, main
):
    one = replacements.add(scope, main, 1, 3)

    assert replacements.add(scope, main, 1, 4, author=RULE) == one
    replacements.add(scope, main, 1, 4)

    assert pairs(replacements, scope, main) == [(1, 4)]
    assert problems(store, scope, main) == []


@pytest.mark.parametrize(
    ("pair", "error"),
    [
        ((3, 3), InvalidInputError),
        ((3, 1), InvalidInputError),
        (("1", 3), InvalidInputError),
        ((1, 9), SessionNotFoundError),
        ((0, 3), SessionNotFoundError),
        ((-2, 3), SessionNotFoundError),
    ],
)
def test_only_a_later_message_of_the_branch_replaces_one_of_it(
    replacements, scope, main, pair, error
):
    with pytest.raises(error):
        replacements.add(scope, main, *pair)

    assert replacements.visible(scope, main) == ()


def test_another_user_sees_and_changes_no_replacement(replacements, scope, main):
    replacements.add(scope, main, 1, 3)
    other = replace(scope, user="somebody else") if scope.user else Scope(user="other")

    with pytest.raises(SessionNotFoundError):
        replacements.visible(other, main)
    with pytest.raises(SessionNotFoundError):
        replacements.remove(other, main, 1)
    with pytest.raises(SessionNotFoundError):
        replacements.add(other, main, 2, 3)


def test_a_removed_replacement_is_gone_and_can_be_set_again(store, replacements, scope, main):
    one = replacements.add(scope, main, 1, 3)

    assert replacements.remove(scope, main, 1) == one
    assert replacements.visible(scope, main) == ()
    with pytest.raises(ReplacementNotFoundError, match="message 1"):
        replacements.remove(scope, main, 1)
    replacements.add(scope, main, 1, 4)

    assert pairs(replacements, scope, main) == [(1, 4)]
    assert problems(store, scope, main) == []


def test_a_branch_inherits_the_replacements_before_its_fork_alone(store, replacements, scope, main):
    replacements.add(scope, main, 1, 3)

    assert pairs(replacements, scope, fork(store, scope, main, at=3)) == [(1, 3)]
    assert pairs(replacements, scope, fork(store, scope, main, at=2)) == []
    assert pairs(replacements, scope, fork(store, scope, main, at=3, inherit=Inherit.PINS)) == []


def test_a_branch_changes_nothing_of_its_parent(store, replacements, scope, main, append):
    task = fork(store, scope, main, at=3)
    append("make that Monday", branch=task)

    replacements.add(scope, main, 1, 3)
    replacements.add(scope, task, 1, 4)

    assert pairs(replacements, scope, main) == [(1, 3)]
    assert pairs(replacements, scope, task) == [(1, 4)]
    replacements.remove(scope, task, 1)
    assert pairs(replacements, scope, task) == [(1, 3)]
    assert problems(store, scope, main) == []


def test_an_earlier_moment_has_the_replacements_of_that_time(replacements, scope, main):
    replacements.add(scope, main, 1, 3)

    assert pairs(replacements, scope, main, last=3) == [(1, 3)]
    assert pairs(replacements, scope, main, last=2) == []


@pytest.mark.parametrize("position", [1, 3])
def test_the_deletion_of_either_message_deletes_the_replacement(
    store, replacements, scope, main, position
):
    task = fork(store, scope, main, at=4)
    replacements.add(scope, main, 1, 3)
    replacements.add(scope, task, 2, 4)

    store.deletion.message(scope, task, position)

    assert pairs(replacements, scope, main) == []
    assert pairs(replacements, scope, task) == [(2, 4)]
    assert problems(store, scope, main) == []
    with pytest.raises(ConflictError, match=f"message {position} was deleted"):
        replacements.add(scope, main, 1, 3)


def test_a_message_of_another_branch_at_the_same_position_keeps_its_replacement(
    store, replacements, scope, main, append
):
    task = fork(store, scope, main, at=2)
    append("the meeting is on Monday", branch=task)
    replacements.add(scope, task, 1, 3)

    store.deletion.message(scope, main, 3)

    assert pairs(replacements, scope, task) == [(1, 3)]


def test_a_branch_takes_its_replacements_with_it(store, replacements, scope, main):
    task = fork(store, scope, main, at=4)
    replacements.add(scope, task, 1, 3)

    store.deletion.branch(scope, task)

    count = store.database.read(
        lambda connection: connection.execute(text("SELECT count(*) FROM replacement")).scalar_one()
    )
    assert count == 0


@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM replacement",
        "UPDATE replacement SET new = 4",
        "UPDATE replacement SET author = 'rule'",
        'UPDATE replacement SET "old" = 2',
    ],
)
def test_every_edit_of_a_stored_replacement_is_found(store, replacements, scope, main, edit):
    replacements.add(scope, main, 1, 3)

    store.database.write(lambda connection: connection.execute(text(edit)) and None)

    assert any("replacement" in problem for problem in problems(store, scope, main))


def test_a_replacement_by_a_message_that_does_not_exist_is_found(store, replacements, scope, main):
    replacements.add(scope, main, 1, 3)

    edit = text("UPDATE replacement SET new = 40")
    store.database.write(lambda connection: connection.execute(edit) and None)

    assert any("message 40 replaces message 1" in one for one in problems(store, scope, main))
