"""A field of a public value is of the type that it says: coerced where it may be, else refused."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from datetime import UTC, date, datetime
from enum import Enum

import pytest

import agentmem
import agentmem.protocols
import agentmem.types
from agentmem import (
    ConfigError,
    InvalidInputError,
    Memory,
    Message,
    ReasoningPart,
    Role,
    TextPart,
    ToolCall,
)
from agentmem.protocols import Passage
from agentmem.testing import WordCounter
from agentmem.types import DisplayForm, Pin, PinScope, Span, Tier

HOMES = (agentmem, agentmem.types, agentmem.protocols)
VALUES = sorted(
    {
        value
        for home in HOMES
        for value in (getattr(home, name) for name in home.__all__)
        if isinstance(value, type) and dataclasses.is_dataclass(value)
    },
    key=lambda value: value.__name__,
)
# Of values whose fields go with one another.
FIXED = {
    "Message": {"role": Role.USER, "parts": (TextPart(text="x"),), "tool_calls": (), "name": "x"},
    "Budget": {}, "Sampling": {}, "InferenceConfig": {},
}  # fmt: skip
FIXED["Message"] |= {"tool_call_id": None, "generated": None}
# Of values of which some fields go with one another, the ones that fit to the others.
GIVEN = {
    "Hit": {"passages": ((0, 1),)},
    "Span": {"form": DisplayForm.PASSAGES, "passages": ((0, 1),)},
}
WRONG = (
    *(5, -1, 1.5, True, None, "x", "", b"x", (), [], {}, object(), Role.USER, int, lambda: 1),
    *((object(),), [object()], ["x", 5], {"x": 1}, [None], {5}, [["x"]], date(2026, 1, 1)),
    *([TextPart(text="x")], ToolCall(id="c", name="f"), {"text": "x"}),
)


def sample(hint):  # noqa: PLR0911 - one for each kind of annotation
    if isinstance(hint, typing.NewType):
        return sample(hint.__supertype__)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        return None if type(None) in inner else sample(inner[0])
    if origin is tuple:
        return (sample(inner[0]),) if inner[1:] == (...,) else tuple(map(sample, inner))
    if origin is not None and issubclass(origin, Mapping):
        return {sample(inner[0]): sample(inner[1])}
    plain = {str: "x", int: 1, float: 0.5, bool: True, bytes: b"abcd"}
    plain |= {datetime: datetime(2026, 1, 1, tzinfo=UTC), date: date(2026, 1, 1)}
    if hint in plain:
        return plain[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return build(hint) if hint is not typing.Any and dataclasses.is_dataclass(hint) else None


def build(value):
    fixed = FIXED.get(value.__name__)
    if fixed is None:
        fixed = {field.name: sample(field.type) for field in dataclasses.fields(value)}
        fixed = {
            name: one for name, one in fixed.items() if one is not None or is_needed(value, name)
        } | GIVEN.get(value.__name__, {})
    return value(**fixed)


def is_needed(value, name):
    field = next(field for field in dataclasses.fields(value) if field.name == name)
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def fits(held, hint):  # noqa: PLR0911 - one for each kind of annotation
    """Whether *held* is of the type that an annotation says, told without the package."""
    if isinstance(hint, typing.NewType):
        return fits(held, hint.__supertype__)
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        return any(fits(held, one) for one in inner)
    if origin is tuple:
        if type(held) is not tuple:
            return False
        each = [inner[0]] * len(held) if inner[1:] == (...,) else inner
        return len(each) == len(held) and all(map(fits, held, each))
    if origin is not None and issubclass(origin, Mapping):
        is_one = isinstance(held, Mapping)
        return is_one and all(fits(k, inner[0]) and fits(v, inner[1]) for k, v in held.items())
    if hint is typing.Any:
        return True
    if hint is None or hint is type(None):
        return held is None
    if hint in {int, float}:
        return isinstance(held, (int, hint)) and not isinstance(held, bool)
    if getattr(hint, "_is_protocol", False):
        return not isinstance(held, (int, str, bytes, list, tuple, dict))
    return not isinstance(hint, type) or isinstance(held, hint)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value.__name__)
def test_a_wrong_field_is_coerced_or_refused_and_never_stored(value):
    right = build(value)
    for field in dataclasses.fields(value):
        for wrong in WRONG:
            try:
                changed = dataclasses.replace(right, **{field.name: wrong})
            except (InvalidInputError, ConfigError):
                continue
            held = getattr(changed, field.name)
            assert fits(held, field.type), f"{field.name} holds {held!r}"


def test_there_are_values_to_try():
    assert {"Message", "ToolCall", "Pin", "Hit", "Prompt", "Sampling"} <= {
        v.__name__ for v in VALUES
    }


def test_a_role_may_be_written_as_text():
    call = ToolCall(id="c1", name="f")
    asked = Message(role="assistant", tool_calls=[call])
    assert asked == Message(role=Role.ASSISTANT, tool_calls=(call,))
    assert asked.role is Role.ASSISTANT
    assert Message(role="tool", tool_call_id="c1").role is Role.TOOL
    assert Passage(position=1, role="user", text="x").role is Role.USER
    assert Span(first=1, last=2, tier="recent").tier is Tier.RECENT


def test_equal_values_are_equal_however_they_were_written():
    thought = [ReasoningPart(text="hm"), TextPart(text="x")]
    one, other = Message(role="user", parts=thought), Message(role=Role.USER, parts=tuple(thought))
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"role": "bogus", "parts": (TextPart(text="x"),)}, "one of system, user, assistant, tool"),
        ({"role": "user", "parts": "x"}, "Message.parts must be a tuple, got 'x'"),
        ({"role": "user", "parts": ["x"]}, "each is a TextPart or a ImagePart or a ReasoningPart"),
        ({"role": "assistant", "tool_calls": [{"id": "c"}]}, "each is a ToolCall"),
        ({"role": "assistant", "tool_calls": {"id": "c"}}, "tool_calls must be a tuple"),
    ],
)
def test_a_refusal_names_the_field_and_what_it_takes(fields, said):
    with pytest.raises(InvalidInputError, match=said):
        Message(**fields)


def test_a_pin_holds_its_scope_and_its_date():
    made = {"version": 1, "text": "x", "author": "user", "created_at": datetime.now(UTC)}
    assert Pin(key="k", scope="user", **made).scope is PinScope.USER
    with pytest.raises(InvalidInputError, match="created_at must be a datetime"):
        Pin(key="k", scope="user", **{**made, "created_at": "today"})


def test_append_refuses_calls_that_are_no_list_in_words():
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        session = memory.session("s")
        session.append("user", "hi", tool_calls=None)
        for wrong in (5, "x", {"id": "c"}, {1}, ToolCall(id="c", name="f")):
            with pytest.raises(InvalidInputError, match="tool_calls takes"):
                session.append("assistant", "hi", tool_calls=wrong)
