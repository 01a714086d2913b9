"""
A program that says, deletes, searches and saves, is killed in the middle of it, and starts again.

    python -m tests.store.vectors.kills DATABASE-URL NUMBER

After each kill whatever was acknowledged is looked for. It prints what was counted as JSON. The
process that kills has no threads, so that its children are as a program is that has just begun.
"""

import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from functools import partial
from pathlib import Path

from sqlalchemy import func, select

from agentmem.protocols import Query, SearchScope
from agentmem.retrieval import HybridRetriever, RecallSettings
from agentmem.retrieval.dense.embed_messages import embed_messages
from agentmem.retrieval.dense.vector_file_format import decode
from agentmem.retrieval.dense.vector_index import FaissIndex
from agentmem.store import Store
from agentmem.store.database.schema import EmbeddingRow
from agentmem.testing import HashingEmbedder
from agentmem.types import Origin, Scope
from tests.builders import say

SCOPE = Scope(namespace="tests", user="u42")
USER = SearchScope(scope=SCOPE)
DELETE_EACH = 7


def open_recall(store):
    settings = RecallSettings(save_after=1)
    retriever = HybridRetriever(HashingEmbedder(dimension=1024), settings=settings)
    return retriever.open_index(store.retrieval_store(SCOPE.namespace))


def ask(session, text, limit=3):
    visible = {session.main: (1, 10**9)}
    return Query(text=text, search_scope=USER, session_id=session.id, visible=visible, limit=limit)


def write_for_ever(url, pipe):
    """Tell of each message by its position, and of each that was deleted by that below zero."""
    with Store.open(url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        recall = open_recall(store)
        index = recall._library.get(USER)
        threading.Thread(target=save_for_ever, args=(index,), daemon=True).start()
        while True:
            head = store.sessions.branch(SCOPE, session.main).head
            text = f"item{head + 1} is said here"
            (stored,) = store.messages.append(SCOPE, session.main, [say("user", text)])
            os.write(pipe, f"{stored.position}\n".encode())
            recall.added()
            (hit,) = recall.search(ask(session, f"item{stored.position}", 1))
            assert hit.stored == stored
            if stored.position % DELETE_EACH == 0:
                gone = store.deletion.message(SCOPE, session.main, stored.position)
                os.write(pipe, f"-{stored.position}\n".encode())
                recall.forget(SCOPE, gone.messages)


def save_for_ever(index):
    while index._files is not None:
        index.save()


def check(url, acknowledged, folder):
    """Look for everything that was acknowledged, in a process that has just begun."""
    with Store.open(url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        messages = store.messages.read(SCOPE, session.main)
        deleted = {m.position for m in messages if m.origin is Origin.DELETED}
        assert {n for n in acknowledged if n > 0} <= {m.position for m in messages}
        assert {-n for n in acknowledged if n < 0} <= deleted
        recall = open_recall(store)
        for message in random.sample(messages, min(40, len(messages))) + list(messages[-10:]):
            hits = recall.search(ask(session, f"item{message.position}"))
            places = [hit.stored.position for hit in hits]
            assert all(hit.stored in messages for hit in hits)
            assert deleted.isdisjoint(places)
            assert message.position in deleted or places[0] == message.position, places
        assert recall.wait(60), recall.status(USER).last_error
        _check_vectors(store, recall, [m for m in messages if m.position not in deleted])
        recall.close()
        gone = {message.id for message in messages if message.position in deleted}
        for path in Path(folder).iterdir() if folder else ():
            assert path.suffix in ("", ".vectors"), path
            if path.suffix:
                assert gone.isdisjoint(decode(path.read_bytes())[1].message_ids.tolist())


def _check_vectors(store, recall, messages):
    count = select(func.count(EmbeddingRow.message_id.distinct()))
    num = store.database.read(lambda connection: connection.execute(count).scalar_one())
    status = recall.status(USER)
    assert num == status.num_embedded == status.num_messages == len(messages), status
    index = recall._library.get(USER)
    if not isinstance(index.vectors.index, FaissIndex):
        return  # the database holds them, and drops each with its message
    ids = index.message_table.message_ids[index.vectors.index.rows].tolist()
    vectors = dict(zip(ids, index.vectors.index.vectors(), strict=True))
    expected = embed_messages(messages, HashingEmbedder(dimension=1024), lambda: None)
    assert {one.message_id: one.vector for one in expected} == {
        message_id: vector.tobytes() for message_id, vector in vectors.items()
    }


def in_child(work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - shown, as nobody above can see it
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def kill_once(url):
    """Give what a writer acknowledged before it was killed."""
    reader, writer = os.pipe()
    child = in_child(partial(write_for_ever, url, writer))
    os.close(writer)
    with os.fdopen(reader) as pipe:
        lines = [pipe.readline()]
        assert lines[0], "the writer failed to start"
        time.sleep(random.expovariate(4))
        os.kill(child, signal.SIGKILL)
        lines += list(pipe)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, "the writer ended by itself"
    return {int(line) for line in lines if line.endswith("\n")}


def main(url, number):
    folder = f"{url.removeprefix('sqlite:///')}-index" if url.startswith("sqlite") else None
    acknowledged, cut = set(), 0
    started = time.monotonic()
    for _ in range(int(number)):
        acknowledged |= kill_once(url)
        cut += any(Path(folder).glob("*.part")) if folder else 0
        _, status = os.waitpid(in_child(partial(check, url, acknowledged, folder)), 0)
        assert os.waitstatus_to_exitcode(status) == 0, "what was acknowledged is not there"
    figures = {
        "kills": int(number),
        "kills_in_the_middle_of_a_save": cut,
        "messages": sum(n > 0 for n in acknowledged),
        "deletions": sum(n < 0 for n in acknowledged),
        "lost": 0,
        "wrong_hits": 0,
        "failed_starts": 0,
        "seconds": round(time.monotonic() - started, 1),
    }
    print(json.dumps(figures))  # noqa: T201 - the figures are what it is for


if __name__ == "__main__":
    main(*sys.argv[1:])
