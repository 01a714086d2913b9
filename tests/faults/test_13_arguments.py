"""An argument of the wrong type is refused in words, before anything is stored."""

import asyncio
import inspect

import pytest

from agentmem import AgentMemError, Budget, ConfigError, InvalidInputError, Memory, Policy, Sampling
from agentmem.context import DiscardOldResults, ModelSummarizer, PinTask
from agentmem.store import Store
from agentmem.testing import ScriptedModel, WordCounter

WRONG = (
    *(5, -1, 1.5, True, "x", "", b"x", [], {}, [1], {"max_tokens": 5}, object(), lambda: 1),
    *(int, Budget, Sampling, Policy, WordCounter, ScriptedModel, 2**70, float("nan")),
)
HOW = {"sampling": ConfigError, "budget": ConfigError}
METHODS = {
    "reply": HOW, "stream": HOW, "regenerate": HOW, "areply": HOW, "astream": HOW,
    "aregenerate": HOW, "assemble": {"budget": ConfigError}, "aassemble": {"budget": ConfigError},
    "compact": {"budget": ConfigError}, "acompact": {"budget": ConfigError},
    "compaction_state": {"budget": ConfigError}, "restore": {"record": InvalidInputError},
}  # fmt: skip
CASES = [
    pytest.param(method, name, error, id=f"{method}({name}=)")
    for method, names in METHODS.items()
    for name, error in names.items()
]
OPENED = ("model", "counter", "retriever", "budget", "policy", "database", "read_only")
BY_HAND = ("model", "counter", "retriever", "budget", "policy")


def shown(value):
    return f"{value!r:.20}"


@pytest.fixture(scope="module")
def memory():
    with Memory.open("sqlite://", model=ScriptedModel()) as opened:
        yield opened


@pytest.fixture(scope="module")
def session(memory):
    opened = memory.session("s")
    opened.append("user", "hi")
    opened.append("assistant", "hello")
    return opened


def state(session):
    return session.branches(), session.messages(), session.assemblies(), session.info


def run(method, **arguments):
    found = method(**arguments)
    if inspect.isawaitable(found):

        async def wait():
            return await found

        asyncio.run(wait())


@pytest.mark.parametrize("is_subtask", [False, True])
@pytest.mark.parametrize(("method", "name", "error"), CASES)
def test_a_wrong_argument_of_a_conversation_stores_nothing(
    session, method, name, error, is_subtask
):
    branch = session.subtask("t") if is_subtask else session
    if not hasattr(branch, method):
        pytest.skip("a subtask has no lines")
    takes_text = method in {"reply", "stream", "areply", "astream"}
    texts = {"text": "a question"} if takes_text else {}
    before = state(session)

    for wrong in WRONG:
        with pytest.raises(error, match=name):
            run(getattr(branch, method), **{**texts, name: wrong})

    assert state(session) == before


@pytest.mark.parametrize("name", OPENED)
def test_a_wrong_argument_opens_no_database(tmp_path, name):
    for wrong in WRONG:
        if (name, wrong) == ("read_only", True):
            continue
        with pytest.raises(ConfigError, match=name):
            Memory.open(f"sqlite:///{tmp_path}/new.db", **{name: wrong})

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", BY_HAND)
def test_a_wrong_argument_makes_no_memory(name):
    with Store.open("sqlite://") as store:
        for wrong in WRONG:
            with pytest.raises(ConfigError, match=name):
                Memory(store, **{name: wrong})
    with pytest.raises(ConfigError, match="store"):
        Memory("sqlite://")


def test_a_model_whose_counter_counts_nothing_is_refused():
    model = ScriptedModel()
    model.counter = WordCounter
    with pytest.raises(ConfigError, match="the model's counter must be an object with"):
        Memory.open("sqlite://", model=model)
    Memory.open("sqlite://", model=model, counter=WordCounter()).close()


@pytest.mark.parametrize("method", ["wait_for_index", "wait_for_compactions", "close", "aclose"])
def test_a_time_that_is_none_is_refused(memory, method):
    for wrong in (True, "x", "", b"x", [], {}, object(), int, float("nan")):
        with pytest.raises(InvalidInputError, match="timeout_s must be a number of seconds"):
            run(getattr(memory, method), timeout_s=wrong)


def test_any_number_of_seconds_can_be_waited(memory):
    for timeout_s in (-1, 0, 2**70, float("inf")):
        assert memory.wait_for_index(timeout_s)
        assert memory.wait_for_compactions(timeout_s)


@pytest.mark.parametrize("method", ["export", "load", "aexport", "aload"])
def test_a_path_that_is_none_is_refused(memory, method):
    for wrong in (5, None, True, b"x", [], object(), int, "a\0b", "\ud800", ""):
        with pytest.raises(AgentMemError):
            run(getattr(memory, method), path=wrong)


@pytest.mark.parametrize(
    ("made", "wrong"),
    [
        (PinTask, {"key": ""}),
        (PinTask, {"key": "x" * 501}),
        (PinTask, {"key": "\ud800"}),
        (PinTask, {"key": 5}),
        (PinTask, {"max_chars": 0}),
        (PinTask, {"max_chars": -1}),
        (DiscardOldResults, {"turns": -1}),
        (Policy, {"auto_pin": PinTask}),
        (Policy, {"discardable": DiscardOldResults}),
        (Policy, {"summarizer": ModelSummarizer}),
        (ModelSummarizer, {"model": "x"}),
        (ModelSummarizer, {"model": ScriptedModel}),
        (ModelSummarizer, {"model": ScriptedModel(), "attempts": "x"}),
    ],
    ids=shown,
)
def test_a_choice_that_cannot_work_is_refused_as_it_is_made(made, wrong):
    with pytest.raises(ConfigError):
        made(**wrong)


def test_what_is_right_is_taken():
    assert PinTask(key="goal", max_chars=1).max_chars == 1
    assert DiscardOldResults(turns=0).turns == 0
    policy = Policy(auto_pin=PinTask(), discardable=DiscardOldResults())
    with Memory.open(
        "sqlite://", model=ScriptedModel(), budget=Budget(), policy=policy, read_only=False
    ) as memory:
        session = memory.session("s")
        asked = {"sampling": Sampling(max_tokens=5), "budget": Budget(context=512, reply=64)}
        assert session.reply("hi", **asked).text == "ok"
        assert session.regenerate(**asked).text == "ok"
        assert session.reply("hi", sampling=None, budget=None).text == "ok"
