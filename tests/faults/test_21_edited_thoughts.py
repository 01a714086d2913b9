"""Thoughts are told apart in answers that are edited or handed back, as in those appended."""

import pytest

from agentmem import Memory, ReasoningPart, TextPart
from agentmem.errors import InvalidInputError, InvalidTextError
from tests.inference.thinking import FAMILIES, SAID, Saying, thinking_counter

APART = (ReasoningPart(text="T1 never"), TextPart(text="A1 ab"))
each_family = pytest.mark.parametrize("family", FAMILIES)


def session_of(family):
    memory = Memory.open("sqlite://", model=Saying(thinking_counter(family)))
    return memory.session("s", user="u")


@each_family
def test_an_edited_answer_has_its_thought_apart(family):
    session = session_of(family)
    session.append("user", "q")
    session.append("assistant", "A0")

    assert session.edit(2, SAID[family]).message.parts == APART


@each_family
def test_a_text_that_is_handed_back_has_its_thought_apart(family):
    session = session_of(family)
    session.append("user", "q")

    with session.subtask("t") as task:
        task.append("user", "x")
        task.promote(SAID[family])

    assert session.messages()[-1].message.parts == APART


@pytest.mark.parametrize("text", ["", "  ", "\n"])
def test_nothing_is_not_handed_back(text):
    session = session_of("qwen")

    with session.subtask("t") as task, pytest.raises(InvalidInputError, match="nothing to hand"):
        task.promote(text)


@pytest.mark.parametrize("call", ["delete_pin", "undo_pin", "unpin", "pin_history"])
def test_a_key_that_cannot_be_stored_is_refused_in_words(call):
    with pytest.raises(InvalidTextError):
        getattr(session_of("qwen"), call)("\ud800")


@pytest.mark.parametrize("call", ["delete_subtask", "resume_subtask"])
@pytest.mark.parametrize("branch_id", [[1], None, "1", 1.5])
def test_a_subtask_is_named_by_its_number(call, branch_id):
    with pytest.raises(InvalidInputError, match="named by its id"):
        getattr(session_of("qwen"), call)(branch_id)
