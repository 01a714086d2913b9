"""What the cache of a real engine keeps of a session and of its subtasks when blocks are short."""

import pytest

from agentmem.config import Budget, Sampling
from tests.inference.tiny import model_with_blocks, tiny_module

BLOCK = 4
MODULE = tiny_module()
SHORT = Sampling(max_tokens=4)
"""A byte is a token here: 4 of them are a block."""


def whole_blocks(prompt):
    """How many tokens of *prompt* can be found again, at most."""
    return len(prompt.token_ids) // BLOCK * BLOCK


@pytest.fixture
def model():
    """The pool holds a session and one long subtask, or two, but not three."""
    return model_with_blocks(110, module=MODULE)


@pytest.fixture
def budget():
    return Budget(context=400, reply=20)


def ask(conversation, letter, count=130):
    return conversation.reply(letter * count, sampling=SHORT)


def go_on(conversation):
    """How many tokens of the next prompt of a conversation are still cached."""
    return conversation.reply("go on", sampling=SHORT).usage.cached_tokens


def test_the_scratch_of_subtasks_gives_way_before_the_prefix_of_their_session(session, model):
    """Without a difference the session would give way: it was used longest ago."""
    first = ask(session, "s")
    one, two = session.subtask("one", inherit="pins"), session.subtask("two", inherit="pins")
    scratch = ask(one, "a")
    ask(two, "b")

    assert go_on(session) >= whole_blocks(first.prompt)
    assert go_on(one) < whole_blocks(scratch.prompt)
    model.check()


def test_what_a_nested_subtask_has_tried_gives_way_before_what_its_parent_has(session, model):
    outer = session.subtask("outer", inherit="pins")
    first = ask(outer, "o")
    one, two = outer.subtask("one", inherit="pins"), outer.subtask("two", inherit="pins")
    ask(one, "a")
    ask(two, "b")

    assert go_on(outer) >= whole_blocks(first.prompt)
    model.check()


def test_a_subtask_that_is_taken_up_again_is_as_deep_as_it_was(session, model):
    first = ask(session, "s")
    outer = session.subtask("outer", inherit="pins")
    kept = ask(outer, "o", 60)
    inner = outer.subtask("inner", inherit="pins")
    again = session.resume_subtask(inner.branch.id)
    ask(again, "a", 100)
    ask(session.resume_subtask(outer.subtask("other", inherit="pins").branch.id), "b", 100)

    assert go_on(outer) >= whole_blocks(kept.prompt)
    assert go_on(session) >= whole_blocks(first.prompt)
    model.check()


def test_what_a_session_said_after_its_subtask_began_outlives_the_subtasks_scratch(session, model):
    ask(session, "s", 60)
    task = session.subtask("compare")
    later = ask(session, "t", 110)
    for letter in "ab":
        ask(task, letter, 60)
    ask(session.subtask("other", inherit="pins"), "c", 110)

    assert go_on(session) >= whole_blocks(later.prompt)
    model.check()
