"""What is found in real databases, by threads and processes that write and search at once."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from agentmem.protocols import Query, SearchScope
from agentmem.retrieval import HybridRetriever, RecallSettings
from agentmem.store import Store
from agentmem.testing import HashingEmbedder
from agentmem.types import Inherit
from tests.builders import say
from tests.store.processes import ROOT, finish, run_together, start
from tests.store.vectors.kills import SCOPE, USER, ask

OTHER_PROCESS = """
import json, sys
from agentmem.store import Store
from tests.builders import say
from tests.store.vectors.kills import SCOPE, ask, open_recall

with Store.open(sys.argv[1]) as store:
    session = store.sessions.get_or_create(SCOPE, "trip")
    recall = open_recall(store)
    print("ready", flush=True)
    for line in sys.stdin:
        what, text = json.loads(line)
        if what == "say":
            store.messages.append(SCOPE, session.main, [say("user", text)])
            recall.added()
            print("said", flush=True)
        else:
            hits = recall.search(ask(session, text))
            found = [[hit.stored.message.text, dict(hit.ranks)] for hit in hits]
            print(json.dumps(found), flush=True)
    recall.close()
"""


@pytest.fixture
def session(store):
    return store.sessions.get_or_create(SCOPE, "trip")


@pytest.fixture
def open_recall():
    opened = []

    def make(store, embedder=None, **options):
        retriever = HybridRetriever(
            embedder or HashingEmbedder(dimension=64), settings=RecallSettings(**options)
        )
        opened.append(retriever.open_index(store.retrieval_store(SCOPE.namespace)))
        return opened[-1]

    yield make
    for recall in opened:
        recall.close()


def texts(hits):
    return [hit.stored.message.text for hit in hits]


def test_what_is_committed_is_found_at_once_and_soon_by_its_meaning(store, session, open_recall):
    recall = open_recall(store)
    say_all(store, session.main, "the hotel in Lisbon", "the museum")

    assert texts(recall.search(ask(session, "hotel", 1))) == ["the hotel in Lisbon"]
    recall.added()
    assert recall.wait(30)
    (hit,) = recall.search(ask(session, "hotel", 1))
    assert set(hit.ranks) == {"lexical", "dense"}


def say_all(store, branch, *said):
    return store.messages.append(SCOPE, branch, [say("user", text) for text in said])


def test_a_subtask_sees_its_branch_and_its_ancestors_up_to_the_forks(store, session, open_recall):
    say_all(store, session.main, "hotel one", "hotel two")
    tasks = [
        store.sessions.fork(SCOPE, session.main, name=name, inherit=Inherit.ALL, at=1)
        for name in ("task", "sibling")
    ]
    for task in tasks:
        say_all(store, task.id, f"hotel of {task.name}")
    recall = open_recall(store)
    assert recall.wait(30)

    query = Query(
        text="hotel",
        search_scope=SearchScope(scope=SCOPE, session_id=session.id),
        session_id=session.id,
        visible={session.main: (1, 1), tasks[0].id: (2, 2)},
        limit=9,
    )

    assert set(texts(recall.search(query))) == {"hotel one", "hotel of task"}


def test_deleted_messages_branches_and_sessions_are_not_found(store, session, open_recall):
    other = store.sessions.get_or_create(SCOPE, "other")
    task = store.sessions.fork(SCOPE, session.main, name="t", inherit=Inherit.ALL, at=0)
    say_all(store, session.main, "hotel one", "hotel two")
    say_all(store, other.main, "hotel of the other session")
    say_all(store, task.id, "hotel of the task")
    recall = open_recall(store)
    assert recall.wait(30)
    query = ask(session, "hotel", 9)
    assert len(recall.search(query)) == 3

    store.deletion.message(SCOPE, session.main, 1)
    assert set(texts(recall.search(query))) == {"hotel two", "hotel of the other session"}
    store.deletion.session(SCOPE, other.id)
    assert texts(recall.search(query)) == ["hotel two"]
    store.deletion.user(SCOPE)
    assert recall.search(query) == ()


@pytest.mark.slow
def test_two_processes_see_each_other_within_a_second(shared_url, open_recall):
    with Store.open(shared_url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        recall = open_recall(store)
        other = Other(shared_url)
        theirs, mine = [], []

        for number in range(5):
            other.ask("say", f"theirs{number} of the hotel")
            committed = time.monotonic()
            assert texts(recall.search(ask(session, f"theirs{number}", 1))) == [
                f"theirs{number} of the hotel"
            ]
            while "dense" not in recall.search(ask(session, f"theirs{number}", 1))[0].ranks:
                assert time.monotonic() < committed + 30
                time.sleep(0.01)
            theirs.append(time.monotonic() - committed)

            say_all(store, session.main, f"mine{number} of the museum")
            recall.added()
            committed = time.monotonic()
            first, *_ = other.ask("find", f"mine{number}")
            assert first[0] == f"mine{number} of the museum"
            while "dense" not in other.ask("find", f"mine{number}")[0][1]:
                assert time.monotonic() < committed + 30
                time.sleep(0.01)
            mine.append(time.monotonic() - committed)
        other.end()

    # A machine with other work may take longer now and then.
    assert min(theirs) < 1
    assert min(mine) < 1


class Other:
    """Another process over the same database, that does as it is told."""

    def __init__(self, url):
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", OTHER_PROCESS, url],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout.readline() == "ready\n"

    def ask(self, *what):
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().strip()
        return answer if answer == "said" else json.loads(answer)

    def end(self):
        finish(self._process)


@pytest.mark.slow
def test_threads_search_while_others_say_and_delete(store, session, open_recall):
    recall = open_recall(store, save_after=5)
    is_over = threading.Event()
    said = []

    def speak(name):
        branch = store.sessions.get_or_create(SCOPE, name).main
        try:
            for number in range(25):
                say_all(store, branch, f"{name}x{number} of the hotel")
                recall.added()
                said.append(f"{name}x{number}")
                if number % 5 == 4:
                    gone = store.deletion.message(SCOPE, branch, number)
                    recall.forget(SCOPE, gone.messages)
        finally:
            is_over.set()

    def look():
        while not is_over.is_set():
            expected = said[-1] if said else None
            hits = recall.search(ask(session, expected or "hotel", 5))
            assert all("[deleted]" not in text for text in texts(hits))
            if expected is not None and int(expected.split("x")[1]) % 5 == 4:
                assert texts(hits)[0] == f"{expected} of the hotel"

    works = [lambda name=name: speak(name) for name in ("ana", "bo")]
    assert run_together(*works, look, look, look) == []
    assert recall.wait(60)
    assert recall.status(USER).num_messages == recall.status(USER).num_embedded == 40


KILLED_BEFORE = """
import os, signal, sys
from agentmem.retrieval import HybridRetriever
from agentmem.store import Store
from agentmem.testing import HashingEmbedder
from tests.store.vectors.kills import SCOPE

class Stuck(HashingEmbedder):
    def embed_passages(self, texts):
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1
        return super().embed_passages(texts)

url, name, left = sys.argv[1:]
embedder = Stuck(name=name, dimension=64)
embedder.left = int(left)
with Store.open(url) as store:
    HybridRetriever(embedder).open_index(store.retrieval_store(SCOPE.namespace)).wait()
"""


@pytest.mark.slow
def test_what_was_committed_and_not_embedded_is_taken_up_by_the_next_process(
    shared_url, open_recall
):
    """And so is a change of the embedder, from where a killed process left it."""
    with Store.open(shared_url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        say_all(store, session.main, *(f"hotel number{n}" for n in range(100)))
        for name in ("hashing", "another"):
            embedder = HashingEmbedder(name=name, dimension=64)
            for left in (0, 1, 1):
                with start(KILLED_BEFORE, shared_url, name, left) as process:
                    process.communicate(timeout=60)
                assert process.returncode == -signal.SIGKILL
            recall = open_recall(store, embedder)
            status = recall.status(USER)
            assert (status.num_embedded, status.num_pending) == (64, 36)
            assert recall.search(ask(session, "number70", 1))[0].ranks["lexical"] == 1

            assert recall.wait(60)
            assert recall.status(USER).num_pending == 0
            hits = recall.search(ask(session, "number70", 1))
            assert hits[0].ranks == {"lexical": 1, "dense": 1}


def test_a_restored_backup_gives_no_wrong_hit(tmp_path, open_recall):
    """The folder with the indexes is that of a later state."""
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    with Store.open(url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        say_all(store, session.main, "the hotel", "the museum")
    shutil.copy(tmp_path / "agent.db", tmp_path / "backup.db")
    with Store.open(url) as store:
        say_all(store, session.main, "a train to Porto")
        recall = open_recall(store)
        assert recall.wait(30)
        assert texts(recall.search(ask(session, "train", 1))) == ["a train to Porto"]
        recall.close()
    shutil.copy(tmp_path / "backup.db", tmp_path / "agent.db")

    with Store.open(url) as store:
        say_all(store, session.main, "a train to Faro")
        recall = open_recall(store)
        assert texts(recall.search(ask(session, "train", 1))) == ["a train to Faro"]
        assert recall.status(USER).num_pending == 1  # the one that was something else
        assert recall.wait(30)
        assert recall.status(USER).num_pending == 0
        (vector,) = recall._library.get(USER).vectors.index.vectors()[-1:]
        expected = HashingEmbedder(dimension=64).embed_query("user: a train to Faro")
        assert vector.tobytes() == expected.tobytes()
        recall.close()
