"""Each call that may wait has a coroutine form of the same signature."""

import asyncio
import inspect
import typing
from datetime import timedelta

import pytest

from agentmem import History, Memory, Session, Snapshot, Subtask
from agentmem.testing import ScriptedModel

CLASSES = (Memory, Session, Subtask, History, Snapshot)
WITHOUT_FORM = {
    "Memory.open": "made once, before the event loop serves anybody",
    "Session.branch": "a property, read in one short transaction; `abranches()` has the same",
    "Session.key": "an attribute",
}


def calls(owner):
    return [
        name
        for name, value in inspect.getmembers(owner)
        if not name.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and not inspect.iscoroutinefunction(value)
    ]


@pytest.mark.parametrize("owner", CLASSES)
def test_each_call_has_a_coroutine_form(owner):
    lacking = {
        f"{owner.__name__}.{name}"
        for name in calls(owner)
        if name != "branch" and not hasattr(owner, f"a{name}")
    }
    assert lacking <= WITHOUT_FORM.keys()


@pytest.mark.parametrize("owner", CLASSES)
def test_a_coroutine_form_has_the_signature_and_types_of_its_call(owner):
    for name in calls(owner):
        form = getattr(owner, f"a{name}", None)
        call = getattr(owner, name)
        if form is None or isinstance(call, property):
            continue
        expected, found = inspect.signature(call), inspect.signature(form)
        assert list(found.parameters.values()) == list(expected.parameters.values()), name
        hints = typing.get_type_hints(inspect.unwrap(form))
        assert {one: hints[one] for one in hints if one != "return"} == {
            one: hint for one, hint in typing.get_type_hints(call).items() if one != "return"
        }
        assert name in form.__doc__ or form.__doc__ == call.__doc__ or len(form.__doc__) > 20


def test_forms_do_what_their_calls_do():
    async def talk():
        async with Memory.open("sqlite://", model=ScriptedModel(["Fine."])) as memory:
            session = await memory.asession("trip", user="ann")
            await session.apin("rule", "Be brief.")
            await session.areply("Hello.")
            assert await memory.ausers() == memory.users() == ("ann",)
            assert await session.aassemblies() == session.assemblies()
            assert await session.abranches() == session.branches()
            assert await session.apin_history("rule") == session.pin_history("rule")
            assert await session.ahead() == session.head()
            assert await session.aaudit() == session.audit()
            assert (await (await session.aat(2)).amessages()) == session.messages()
            task = await session.asubtask("work")
            await task.apromote("done")
            await task.aend()
            assert session.messages()[-1].message.text == "done"
            assert (await session.ahistory(task.branch.id)).branch == task.branch
            assert await memory.await_for_index(1)
            assert await memory.await_for_compactions(1)
            assert await memory.apurge(timedelta(days=1)) == ()
            assert await memory.apurge_log(timedelta(days=1)) == 0
            assert await memory.adelete_user("ann") == 1
            assert memory.users() == ()

    asyncio.run(talk())
