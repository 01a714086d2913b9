"""Subtasks side by side over one real engine: what they share, what they leave, who fails."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from agentmem.config import Budget, Sampling
from agentmem.errors import AdmissionError, DeadlineError
from agentmem.memory import Memory
from agentmem.types import BranchState
from tests.inference.tiny import model_with_blocks, tiny_module

BLOCK = 4
NAMES = ("north", "south", "east", "west")
SHORT = Sampling(max_tokens=6)


def plain_spoken():
    """A model that says only printable characters, so that every answer can be spelled."""
    module = tiny_module()
    with torch.no_grad():
        module.lm_head.weight[94:] = 0
    return module


MODULE = plain_spoken()


def whole_blocks(num_tokens):
    return num_tokens // BLOCK * BLOCK


def inherited(session):
    """How many tokens of a subtask's prompt its parent has said."""
    prompt = session.assemble()
    counter = session._runtime.need_counter()
    return len(counter.render(prompt.messages, add_generation_prompt=False).token_ids)


def in_threads(work, items=NAMES):
    """What *work* gives for each of *items*, or raises, all at the same time."""
    with ThreadPoolExecutor(len(items)) as pool:
        running = [pool.submit(work, item) for item in items]
        return [one.exception() or one.result() for one in running]


@pytest.fixture
def model():
    return model_with_blocks(250, module=MODULE)


@pytest.fixture
def budget():
    return Budget(context=400, reply=20)


@pytest.fixture
def session(memory):
    session = memory.session("trip")
    session.pin("role", "You are a travel agent. The budget is 500 EUR.")
    session.reply("Find me a hotel.", sampling=SHORT)
    return session


def test_subtasks_in_threads_find_the_parents_blocks_and_hold_them_together(session, model):
    shared = inherited(session)
    all_run, measured = threading.Barrier(len(NAMES)), threading.Barrier(len(NAMES))
    in_use = []

    def work(name):
        with session.subtask(name) as task:
            stream = task.stream(f"Look {name}.", sampling=SHORT)
            next(stream)
            all_run.wait(60)
            if name == NAMES[0]:
                in_use.append(model.kv_usage().in_use)
            measured.wait(60)
            list(stream)
            task.promote(f"{name}: {stream.reply.text}")
            return stream.reply.usage

    usages = in_threads(work)

    own = max(usage.prompt_tokens + SHORT.max_tokens for usage in usages) - whole_blocks(shared)
    assert in_use[0] <= whole_blocks(shared) // BLOCK + len(NAMES) * (own // BLOCK + 2)
    assert in_use[0] < sum(usage.prompt_tokens // BLOCK for usage in usages)
    assert sorted(message.message.text[:4] for message in session.messages()[2:]) == sorted(
        name[:4] for name in NAMES
    )
    assert session.check() == ()
    model.check()


@pytest.mark.slow
def test_the_children_find_what_their_parents_prompt_and_answer_have_cached(session):
    first = session.reply("And one more.", sampling=SHORT)
    computed = len(first.prompt.token_ids) + first.usage.completion_tokens - 1

    def work(name):
        with session.subtask(name) as task:
            return task.reply(f"Look {name}.", sampling=SHORT).usage.cached_tokens

    async def look(name):
        async with await session.asubtask(name) as task:
            return (await task.areply(f"Look {name}.", sampling=SHORT)).usage.cached_tokens

    async def all_of_them():
        return await asyncio.gather(*map(look, NAMES))

    for cached in (in_threads(work), asyncio.run(all_of_them())):
        assert min(cached) >= whole_blocks(computed)


@pytest.mark.parametrize("form", ["threads", "coroutines"])
def test_a_prefix_that_nobody_has_computed_yet_is_computed_once(memory, model, form):
    session = memory.session("cold")
    session.append("user", "Find me a hotel. " * 4)
    session.append("assistant", "Hotel Lisboa costs 92 EUR.")
    shared = inherited(session)

    def work(name):
        return session.subtask(name).reply(f"Look {name}.", sampling=SHORT).usage

    async def all_of_them():
        tasks = [await session.asubtask(name) for name in NAMES]
        replies = (
            task.areply(f"Look {name}.", sampling=SHORT)
            for task, name in zip(tasks, NAMES, strict=True)
        )
        return [reply.usage for reply in await asyncio.gather(*replies)]

    usages = in_threads(work) if form == "threads" else asyncio.run(all_of_them())

    cached = sorted(usage.cached_tokens for usage in usages)
    assert cached[0] == 0
    assert cached[1] >= whole_blocks(shared)
    assert model.kv_usage().in_use == 0
    model.check()


@pytest.mark.slow
def test_the_end_of_a_subtask_frees_what_only_it_held(memory, model):
    """What is inherited ends with a block here, so no block holds both that and scratch."""
    session = memory.session("trip")
    said = session.reply("Find me a good hotel.", sampling=SHORT)
    assert inherited(session) % BLOCK == 0
    with session.subtask("first") as task:
        task.reply("Now all of the parent is cached.", sampling=SHORT)
    before = model.kv_usage()

    one, two = session.subtask("one"), session.subtask("two")
    one.reply("A long piece of work.", sampling=SHORT)
    one.reply("And another one.", sampling=SHORT)
    one_alone = model.kv_usage()
    last = two.reply("Something else.", sampling=SHORT)
    both = model.kv_usage()
    one.end()
    two_alone = model.kv_usage()
    again = two.reply("Go on.", sampling=SHORT)
    two.discard()
    after = model.kv_usage()

    # The first block behind the fork, "<|im_start|>use", is of both.
    assert two_alone.free - both.free == before.free - one_alone.free - 1
    assert again.usage.cached_tokens >= whole_blocks(len(last.prompt.token_ids))
    assert after == before
    cached = session.reply("Well?", sampling=SHORT).usage.cached_tokens
    assert cached >= whole_blocks(len(said.prompt.token_ids))
    model.check()


def crash(task):
    task.promote("half an answer")
    raise RuntimeError("tool failed")


def leave(task):
    with task.stream("Look.", sampling=SHORT) as stream:
        next(stream)
        raise KeyError("left")


FAILURES = {
    "raises": (RuntimeError, crash),
    "is late": (DeadlineError, lambda task: task.reply("Look.", timeout_s=1e-9)),
    "is too long": (
        AdmissionError,
        lambda task: task.reply("x" * 300, budget=Budget(context=500, reply=130)),
    ),
    "is left": (KeyError, leave),
}


@pytest.mark.slow
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("form", ["threads", "coroutines"])
def test_a_subtask_that_fails_harms_no_other(url, failure, form):
    kind, fail = FAILURES[failure]
    model = model_with_blocks(100, module=MODULE)
    memory = Memory.open(url, model=model, budget=Budget(context=400, reply=20))
    session = memory.session("trip")
    session.reply("Find me a hotel.", sampling=SHORT)
    tasks = {name: session.subtask(name) for name in (*NAMES, "bad")}

    def work(name):
        with tasks[name] as task:
            if name == "bad":
                fail(task)
            reply = task.reply(f"Look {name}.", sampling=SHORT)
            task.promote(f"{name}: {reply.text}")
            return reply.text

    async def all_of_them():
        threads = (asyncio.to_thread(work, name) for name in tasks)
        return await asyncio.gather(*threads, return_exceptions=True)

    *said, error = (
        in_threads(work, list(tasks)) if form == "threads" else asyncio.run(all_of_them())
    )

    assert isinstance(error, kind)
    assert said == [alone(name) for name in NAMES]
    assert tasks["bad"].branch.state is BranchState.DISCARDED
    back = sorted(message.message.text for message in session.messages()[2:])
    assert back == sorted(f"{name}: {text}" for name, text in zip(NAMES, said, strict=True))
    assert model.kv_usage().in_use == 0
    assert all(audit.problems == () for audit in session.audit())
    model.check()
    memory.close()


def alone(name):
    """What a subtask of that name is answered where there is no other."""
    model = model_with_blocks(100, module=MODULE)
    with Memory.open("sqlite://", model=model, budget=Budget(context=400, reply=20)) as memory:
        session = memory.session("trip")
        session.reply("Find me a hotel.", sampling=SHORT)
        return session.subtask(name).reply(f"Look {name}.", sampling=SHORT).text
