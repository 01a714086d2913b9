"""What a debugger, a notebook or a log line shows of each public object: one short line."""

import inspect
import re
from dataclasses import fields, is_dataclass
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import Budget, Memory, Message, PinTask, Policy, Role, TextPart, ToolCall
from agentmem.config import DatabaseConfig
from agentmem.retrieval import HybridRetriever
from agentmem.testing import HashingEmbedder, ScriptedModel
from agentmem.types.short_repr import MAX_CHARS, ShortRepr, short_repr
from tests.public_surface import public_values

LONG = "words and more words\n" * 200


def is_short(value):
    shown = repr(value)
    return len(shown) <= MAX_CHARS and "\n" not in shown and " at 0x" not in shown


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, value in public_values().items()
        if inspect.isclass(value)
        and not issubclass(value, Exception | Enum | dict)
        and not getattr(value, "_is_protocol", False)
    ],
)
def test_each_public_class_has_a_short_representation(name):
    owner = public_values()[name]
    if is_dataclass(owner):
        assert issubclass(owner, ShortRepr)
    assert owner.__repr__ is not object.__repr__


@pytest.mark.slow
def test_what_a_conversation_is_made_of_fits_a_line():
    retriever = HybridRetriever(HashingEmbedder())
    model = ScriptedModel([LONG] * 9)
    with Memory.open("sqlite://", model=model, retriever=retriever) as memory:
        session = memory.session("trip " * 50, user="ann " * 50)
        session.pin("rule", LONG)
        for _ in range(20):
            session.append("user", LONG)
            reply = session.reply()
        prompt, task = session.assemble(budget=Budget(context=2500)), session.subtask("work")
        with session.stream("And then?") as stream:
            values = [memory, session, task, session.history(task.branch.id), session.at(3)]
            values += [prompt, reply, stream, retriever, session.branch, session.info]
            values += [*prompt.layout, prompt.reuse, *session.pins(), *session.truncations()]
            values += [*session.messages(), *(one.message for one in session.messages())]
            values += [*session.assemblies(), *session.audit(), *session.summaries()]
            values += [*session.search("words"), memory.health(), memory.index_status()]
            values += [session.compaction_state(), memory.sessions(user="ann " * 50)]
            listed = [one for one in values if not isinstance(one, tuple)]
            assert [repr(one) for one in listed if not is_short(one)] == []


def test_what_differs_from_the_defaults_is_shown():
    assert repr(Budget(context=4200)) == "Budget(context=4200)"
    assert repr(Policy(auto_pin=PinTask())) == "Policy(auto_pin=PinTask())"
    text = TextPart(text="Hello.")
    assert repr(Message(role=Role.USER, parts=(text,))) == "Message(role='user', parts=<1 items>)"
    assert repr(ToolCall(id="c", name="f")) == "ToolCall(id='c', name='f')"


def test_no_representation_shows_a_password():
    assert "secret" not in repr(DatabaseConfig())
    with Memory.open("sqlite://") as memory:
        assert re.fullmatch(r"Memory\('sqlite://.*', namespace='default'\)", repr(memory))


@given(st.recursive(st.text() | st.binary() | st.integers(), st.lists, max_leaves=20))
def test_whatever_a_field_has_the_line_is_short(value):
    shown = short_repr("Kind", value, name=value)
    assert len(shown) <= MAX_CHARS
    assert "\n" not in shown


def test_equal_values_of_all_dataclasses_still_compare():
    assert Budget(context=4200) == Budget(context=4200)
    assert {one.name for one in fields(Budget)} >= {"context", "reply"}
