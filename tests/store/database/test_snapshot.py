"""Several reads of one moment, which join one transaction of their thread."""

import threading

import pytest
from sqlalchemy import event

from agentmem.errors import SessionNotFoundError, StoreError
from agentmem.store import Store
from agentmem.types import BranchId, Scope
from tests.builders import say


def texts(store, scope, branch):
    return [one.message.text for one in store.messages.read(scope, branch)]


def num_transactions(store, work):
    begun = []

    def note(connection):
        begun.append(connection)

    event.listen(store.database.engine, "begin", note)
    work()
    event.remove(store.database.engine, "begin", note)
    return len(begun)


def test_all_reads_of_a_snapshot_are_of_one_moment(shared_url, scope):
    with Store.open(shared_url) as store, Store.open(shared_url) as other:
        main = store.sessions.get_or_create(scope, "k").main
        store.messages.append(scope, main, [say("user", "before")])

        def look():
            first = texts(store, scope, main), store.sessions.branch(scope, main).head
            other.messages.append(scope, main, [say("user", "meanwhile")])
            return first, (texts(store, scope, main), store.sessions.branch(scope, main).head)

        first, second = store.snapshot(look)

        assert first == second == (["before"], 1)
        assert texts(store, scope, main) == ["before", "meanwhile"]
        assert store.sessions.branch(scope, main).head == 2


def test_a_snapshot_is_one_transaction_also_within_another(store, scope):
    main = store.sessions.get_or_create(scope, "k").main

    def look():
        store.sessions.branch(scope, main)
        store.snapshot(lambda: store.pins.visible(scope, main))
        return texts(store, scope, main)

    assert num_transactions(store, lambda: store.snapshot(look)) == 1
    assert num_transactions(store, look) == 3


def test_a_snapshot_writes_nothing_and_a_write_after_it_does(store, scope):
    main = store.sessions.get_or_create(scope, "k").main

    def write():
        store.messages.append(scope, main, [say("user", "hi")])

    with pytest.raises(StoreError, match="read-only"):
        store.snapshot(write)
    with pytest.raises(SessionNotFoundError):
        store.snapshot(lambda: store.sessions.branch(scope, BranchId(main + 999)))

    write()
    assert texts(store, scope, main) == ["hi"]


def test_the_snapshot_of_a_thread_is_not_joined_by_another(shared_url):
    scope = Scope()
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "k").main
        seen = []

        def other():
            store.messages.append(scope, main, [say("user", "of a thread")])
            seen.append(texts(store, scope, main))

        def look():
            store.sessions.branch(scope, main)
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
            return texts(store, scope, main)

        assert store.snapshot(look) == []
        assert seen == [["of a thread"]]
