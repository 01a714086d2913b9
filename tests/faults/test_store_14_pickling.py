"""Public values and errors pass from process to process, and are copied, as they are."""

import copy
import importlib
import inspect
import pickle
import types
import typing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, date, datetime, tzinfo
from enum import Enum
from multiprocessing import get_context
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import pytest

from agentmem import AgentMemError, BranchInfo, Budget, DeadlineError, Line, Memory, Policy, diff
from agentmem.retrieval import HybridRetriever
from agentmem.testing import ScriptedModel
from agentmem.types import FinishReason, Message, Role, TextPart

PACKAGES = ("", ".context", ".memory", ".protocols", ".retrieval", ".store", ".testing", ".types")
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)

WHOLE = {
    Message: lambda: Message(
        role=Role.USER, parts=(TextPart(text="hello"),), name="anna", extra={"signature": [1]}
    ),
}
"""Examples of values whose fields must fit together; of the others one is made field by field."""

SCALARS = {
    str: lambda: "text",
    int: lambda: 3,
    float: lambda: 0.5,
    bool: lambda: True,
    bytes: lambda: b"\0\0\0\0",
    datetime: lambda: datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    date: lambda: date(2026, 1, 2),
    tzinfo: lambda: UTC,
    Path: lambda: Path("memory.db"),
    AgentMemError: lambda: AgentMemError("text"),
}


def public_classes():
    for package in PACKAGES:
        module = importlib.import_module(f"agentmem{package}")
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) and not getattr(value, "_is_protocol", False):
                yield value


def public_values():
    kinds = {kind for kind in public_classes() if is_dataclass(kind) or issubclass(kind, Enum)}
    # A line begins others, so it belongs to its session: see the test of its copies.
    return sorted(kinds - {Line}, key=lambda kind: kind.__qualname__)


def every_error(kind=AgentMemError):
    list(public_classes())
    found = {kind}
    for below in kind.__subclasses__():
        found |= set(every_error(below))
    ours = (one for one in found if one.__module__.startswith("agentmem."))
    return sorted(ours, key=lambda one: one.__qualname__)


def example(hint):
    """Make a value of an annotation, with something in every field that takes something."""
    if isinstance(hint, typing.NewType):
        return example(hint.__supertype__)
    if hint in {**WHOLE, **SCALARS}:
        return {**WHOLE, **SCALARS}[hint]()
    if get_origin(hint) is not None:
        return example_of_many(get_origin(hint), get_args(hint))
    if inspect.isclass(hint) and issubclass(hint, Enum):
        return next(iter(hint))
    if is_dataclass(hint):
        return value_of(hint)
    raise AssertionError(f"say in WHOLE or SCALARS how a {hint} is made")


def example_of_many(origin, inner):
    if origin in {typing.Union, types.UnionType}:
        return example(next(one for one in inner if one is not types.NoneType))
    if origin is tuple:
        return (example(inner[0]),) if inner[-1] is ... else tuple(map(example, inner))
    if inspect.isclass(origin) and issubclass(origin, Mapping):
        return {example(inner[0]): example(inner[1])}
    return [example(one) for one in inner[:1]]


def value_of(kind):
    if kind in WHOLE:
        return WHOLE[kind]()
    hints = get_type_hints(kind)
    given = {}
    for field in fields(kind):
        is_needed = field.default is MISSING and field.default_factory is MISSING
        if field.init and is_needed:
            given[field.name] = example(hints[field.name])
    return kind(**given)


def error_of(kind):
    if not any(inspect.isfunction(vars(one).get("__init__")) for one in kind.__mro__):
        return kind("a message with ünïcode")
    given = {
        name: 0 if name == "index" else example(get_type_hints(kind.__init__)[name])
        for name, parameter in inspect.signature(kind).parameters.items()
    }
    if "text" in given:
        given["text"] = "\0 in a text"
    positional = [
        given.pop(name)
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is not parameter.KEYWORD_ONLY
    ]
    return kind(*positional, **given)


def copies_of(value):
    written = [pickle.dumps(value, number) for number in PROTOCOLS]
    yield from map(pickle.loads, written)
    yield copy.deepcopy(value)
    yield copy.copy(value)


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_an_error_is_copied_with_its_message_and_attributes(kind):
    error = error_of(kind)
    error.add_note("while a test ran")
    for other in copies_of(error):
        assert type(other) is kind
        assert (str(other), other.args, vars(other)) == (str(error), error.args, vars(error))


@pytest.mark.parametrize("kind", public_values(), ids=lambda kind: kind.__name__)
def test_a_public_value_is_copied_as_an_equal_one(kind):
    value = next(iter(kind)) if issubclass(kind, Enum) else value_of(kind)
    for other in copies_of(value):
        assert type(other) is kind
        assert _parts(other) == _parts(value)


def test_a_line_is_copied_as_the_plain_description_of_its_branch():
    plain = value_of(BranchInfo)
    line = Line(**{field.name: getattr(plain, field.name) for field in fields(plain)}, begin=str)
    for other in copies_of(line):
        assert type(other) is BranchInfo
        assert other == plain == line


def _parts(value):
    """A policy's summarizer is equal to itself alone: its type is what can be compared."""
    if not is_dataclass(value):
        return value
    parts = {field.name: getattr(value, field.name) for field in fields(value)}
    return {
        name: part if type(part).__eq__ is not object.__eq__ else type(part)
        for name, part in parts.items()
    }


def memory_with_everything():
    return Memory.open(
        "sqlite://",
        model=ScriptedModel(["an answer"] * 30),
        retriever=HybridRetriever(),
        budget=Budget(context=160, reply=16),
        policy=Policy(),
    )


def test_what_a_session_returns_is_copied_as_it_is():
    with memory_with_everything() as memory:
        session = memory.session("s")
        session.pin("role", "You help.")
        for index in range(12):
            reply = session.reply(f"question {index} about hotels in Lisbon and the river there")
        prompt = session.assemble(query="hotels in Lisbon")
        values = [
            reply,
            prompt,
            diff(reply.prompt, prompt),
            session.messages(),
            session.pins(),
            session.assemblies(),
            session.truncations(),
            session.summaries(),
            session.search("hotels"),
            session.branch,
            session.info,
            session.audit_branch(),
            memory.sessions(),
        ]
        assert prompt.truncations or session.truncations()
        for value in values:
            for other in copies_of(value):
                assert other == value
        again = next(copies_of(prompt))
        assert again.explain() == prompt.explain()
        with pytest.raises(TypeError):
            again.tokens_by_tier["pinned"] = 0
        assert hash(again) == hash(prompt)


def fail_in_a_worker(number):
    if number % 2:
        raise DeadlineError(timeout_s=float(number))
    with Memory.open("sqlite://", model=ScriptedModel(["hi"])) as memory:
        return memory.session("s").reply(f"hello {number}")


@pytest.mark.slow
def test_replies_and_errors_come_out_of_a_process_pool():
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(fail_in_a_worker, number) for number in range(4)]
        for number, job in enumerate(jobs):
            if number % 2:
                with pytest.raises(DeadlineError, match=f"after its {number} s") as caught:
                    job.result()
                assert caught.value.timeout_s == number
            else:
                assert job.result().finish_reason is FinishReason.STOP
                assert job.result().prompt.text.startswith(f"user: hello {number}")
