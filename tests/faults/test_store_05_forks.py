"""
A process that is forked after models are loaded and databases opened, as servers preload them.

Each program runs in an interpreter of its own: a fork of the tests would have their threads.
"""

import pytest

from tests.store.conftest import new_postgres_url, postgres  # noqa: F401 - fixtures
from tests.store.processes import finish, start

pytestmark = pytest.mark.slow

PRELUDE = """
import asyncio, json, os, signal, sys, threading, time
from agentmem import Memory, Policy
from agentmem.errors import AgentMemError, InferenceError, StoreError
from agentmem.testing import ScriptedModel, WordCounter

def fork(work):
    '''Give what *work* returns in a child, which has 60 s.'''
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        try:
            found = work()
        except BaseException as error:
            found = f"{type(error).__name__}: {error}"
        os.write(writer, json.dumps(found).encode())
        os._exit(0)
    os.close(writer)
    return child, reader

def found(forked):
    child, reader = forked
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return json.loads(text) if text else "the child hung"

def error_of(call):
    try:
        call()
    except AgentMemError as error:
        return type(error).__name__
    return "none"
"""


def run(code, *arguments):
    return finish(start(PRELUDE + code, *arguments), timeout=150)


MODEL = """
import torch
torch.set_num_threads(2)
from tests.inference.tiny import ask, random_ids, tiny_model, tiny_module
module = tiny_module(hidden_size=256, intermediate_size=1024)
model = tiny_model(module=module, kv_bytes=8 << 20)
prompt = random_ids(300)
right = model.generate(ask(prompt, 5)).token_ids
busy = [threading.Thread(target=lambda: [model.generate(ask(random_ids(50, seed=i), 20))
                                         for i in range(10)]) for _ in range(3)]
for thread in busy: thread.start()
"""

USES_OF_A_MODEL = """
def work():
    uses = (
        lambda: model.generate(ask(prompt, 2)),
        lambda: model.submit(ask(prompt, 2)),
        lambda: next(model.stream(ask(prompt, 2))),
        lambda: model.samples(ask(prompt, 2), 2),
        lambda: asyncio.run(model.agenerate(ask(prompt, 2))),
        model.kv_usage,
        model.stats,
        lambda: model.forget(cache_salt=""),
        lambda: model.discard_prefix(prompt),
        model.close,
    )
    return [error_of(use) for use in uses]

children = [fork(work) for _ in range(3)]
for child in children: print(found(child))
for thread in busy: thread.join(60)
print(model.generate(ask(prompt, 5)).token_ids == right)
"""


def test_a_child_cannot_use_the_model_and_hears_of_it_and_its_cleaning_up_is_quiet():
    told = ["InferenceError"] * 7 + ["none"] * 3
    assert run(MODEL + USES_OF_A_MODEL).splitlines() == [str(told)] * 3 + ["True"]


LOAD_ANEW = """
def work():
    fresh = tiny_module(hidden_size=256, intermediate_size=1024)
    own = tiny_model(module=fresh, kv_bytes=8 << 20)
    return list(own.generate(ask(prompt, 5)).token_ids) == list(right)

children = [fork(work) for _ in range(3)]
for child in children: print(found(child))
for thread in busy: thread.join(60)
"""


def test_a_child_of_a_process_that_has_computed_can_load_a_model_of_its_own():
    assert run(MODEL + LOAD_ANEW).splitlines() == ["True"] * 3


IN_MEMORY = """
memory = Memory.open("sqlite://", model=ScriptedModel(["one", "two"]))
session = memory.session("x")
session.append("user", "said before")

def work():
    found = [error_of(lambda: session.append("user", "lost")), error_of(session.messages),
             error_of(lambda: memory.session("y")), error_of(lambda: session.reply("z"))]
    memory.close()
    memory.close()
    return found

print(found(fork(work)))
session.append("user", "said after")
print([one.message.text for one in session.messages()])
"""


def test_a_database_in_memory_is_refused_in_a_child_and_goes_on_in_the_parent():
    assert run(IN_MEMORY).splitlines() == [
        str(["StoreError"] * 4),
        "['said before', 'said after']",
    ]


SHARED = """
url = sys.argv[1]
memory = Memory.open(url, counter=WordCounter())
sessions = [memory.session(f"parent {i}") for i in range(3)]
mine = memory.session("main")
stop = False
counts = [0] * 3

def write(i):
    while not stop:
        sessions[i].append("user", f"number {counts[i]}")
        counts[i] += 1

threads = [threading.Thread(target=write, args=(i,)) for i in range(3)]
for thread in threads: thread.start()

def child(i):
    def work():
        session = memory.session(f"child {i}")
        for n in range(10):
            session.append("user", f"number {n}")
            mine.append("user", f"child {i}, number {n}")
        session.assemble()
        memory.close(timeout_s=0.1)
        return len(Memory.open(url, counter=WordCounter()).session(f"child {i}").messages())
    return work

time.sleep(0.2)
children = [fork(child(i)) for i in range(4)]
print([found(one) for one in children])
time.sleep(0.2)
stop = True
for thread in threads: thread.join(30)
print([len(one.messages()) for one in sessions] == counts, len(mine.messages()))
memory.close()
"""


def check_shared(url):
    assert run(SHARED, url).splitlines() == ["[10, 10, 10, 10]", "True 40"]


def test_children_write_to_the_same_file_as_the_busy_parent(tmp_path):
    check_shared(f"sqlite:///{tmp_path / 'agent.db'}")


def test_children_write_to_the_same_postgresql_as_the_busy_parent(new_postgres_url):  # noqa: F811
    check_shared(new_postgres_url)


INHERITED = """
memory = Memory.open(sys.argv[1], counter=WordCounter())
memory.session("x").append("user", "hello")

def descriptors():
    return sorted(os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))
                  for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}"))

print(found(fork(lambda: [name for name in descriptors() if "agent.db" in name])))
print(len(memory.session("x").messages()))
"""


def test_a_child_inherits_no_open_database_file(tmp_path):
    """SQLite in the child would take itself to hold locks that only its parent holds."""
    assert run(INHERITED, f"sqlite:///{tmp_path / 'agent.db'}").splitlines() == ["[]", "1"]


HALF = """
url = sys.argv[1]
memory = Memory.open(url, model=ScriptedModel(["one two three four"]))
session = memory.session("x")
stream = session.stream("go")
next(stream)
leave = sys.argv[2]

def work():
    global stream
    if leave == "close":
        stream.close()
    elif leave == "drop":
        del stream
    elif leave == "read":
        return error_of(lambda: list(stream))
    else:
        memory.close(timeout_s=20)
    return "none"

started = time.monotonic()
print(found(fork(work)), time.monotonic() - started < 10)
print([one.message.text for one in session.messages()])
print("".join(stream))
print([one.message.text for one in session.messages()])
"""


@pytest.mark.parametrize("leave", ["close", "drop", "read", "memory"])
def test_a_reply_that_runs_stays_its_processes_own(tmp_path, leave):
    """The half answer was stored by both, and the whole one by each that read on."""
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    assert run(HALF, url, leave).splitlines() == [
        f"{'StoreError' if leave == 'read' else 'none'} True",
        "['go']",
        " two three four",
        "['go', 'one two three four']",
    ]


FOLDING = """
from agentmem.memory.background_jobs import Background
background = Background()
begun, go_on = threading.Event(), threading.Event()
background.ask("a", lambda _: (begun.set(), go_on.wait(30)))
background.ask("b", lambda _: None)
begun.wait(30)
background._changed.acquire()

def work():
    done = []
    background.ask("a", lambda _: done.append("a"))
    return background.wait(20), done, str(background.state("b").status)

child = fork(work)
background._changed.release()
print(found(child))
go_on.set()
print(background.wait(20))
"""


def test_a_child_folds_in_the_background_though_the_parent_was_folding():
    assert run(FOLDING).splitlines() == ["[True, ['a'], 'idle']", "True"]


PRELOAD = """
import multiprocessing
class Slow(ScriptedModel):
    def stream(self, request):
        for chunk in super().stream(request):
            time.sleep(0.01)
            yield chunk

memory = Memory.open(sys.argv[1], model=Slow(["one two three"] * 100))
async def serve(name, times):
    async def one(i):
        session = await memory.asession(f"{name} {i}")
        return (await session.areply("hello")).text
    return await asyncio.gather(*[one(i) for i in range(times)])
print(len(asyncio.run(serve("master", 20))))

def worker(name, results):
    signal.alarm(60)
    results.put((name, len(asyncio.run(serve(name, 20)))))
    memory.close()

context = multiprocessing.get_context("fork")
results = context.Queue()
workers = [context.Process(target=worker, args=(f"worker {i}", results)) for i in range(2)]
for one in workers: one.start()
print(sorted(results.get(timeout=60) for _ in workers))
for one in workers: one.join(60)
print([one.exitcode for one in workers], len(memory.sessions()))
"""


def test_workers_of_a_preloaded_memory_serve_coroutines(tmp_path):
    printed = run(PRELOAD, f"sqlite:///{tmp_path / 'agent.db'}").splitlines()

    assert printed == ["20", "[('worker 0', 20), ('worker 1', 20)]", "[0, 0] 60"]


def test_the_counter_of_a_day_is_found_in_a_child_though_a_thread_was_looking():
    code = """
from datetime import date
from tests.inference.tiny import with_template, CHATML
counter = with_template(CHATML)
counter._dated._lock.acquire()
child = fork(lambda: counter.at_date(date(2026, 1, 1)) is counter)
counter._dated._lock.release()
print(found(child))
"""
    assert run(code).strip() == "True"
