"""What a retriever reads of the store, and the vectors that it keeps there."""

import struct
import threading
from pathlib import Path

import pytest
from sqlalchemy import func, select

from agentmem.errors import InvalidInputError, SessionNotFoundError
from agentmem.protocols import BranchRange, Embedding, SearchScope
from agentmem.store import Store
from agentmem.store.database.schema import EmbedderRow, EmbeddingRow
from agentmem.types import Inherit, Scope
from tests.builders import say

MODEL = "mini@1:3"


def vector(*numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def embedding(stored, *numbers, first=0, last=1):
    return Embedding(message_id=stored.id, first=first, last=last, vector=vector(*numbers))


def count(store, table=EmbeddingRow):
    statement = select(func.count()).select_from(table)
    return store.database.read(lambda connection: connection.execute(statement).scalar_one())


@pytest.fixture
def retrieval_store(store, scope):
    return store.retrieval_store(scope.namespace)


@pytest.fixture
def search_scope(store, scope, main):
    return SearchScope(scope=scope, session_id=store.sessions.branch(scope, main).session_id)


@pytest.fixture
def task(store, scope, main, append):
    """A subtask with a message of its own, forked off the first of two."""
    append("a", "b")
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=1).id
    append("c", branch=task)
    return task


def test_branches_are_listed_with_the_messages_of_their_own(
    store, retrieval_store, search_scope, main, task
):
    scope = search_scope.scope
    other = store.sessions.get_or_create(scope, "other")

    of_session = retrieval_store.branch_ranges(search_scope)
    of_user = retrieval_store.branch_ranges(SearchScope(scope=scope))

    session = search_scope.session_id
    expected = (
        BranchRange(session_id=session, branch_id=main, parent=None, forked_at=0, head=2),
        BranchRange(session_id=session, branch_id=task, parent=main, forked_at=1, head=2),
    )
    assert of_session == expected
    assert of_user == (
        *expected,
        BranchRange(session_id=other.id, branch_id=other.main, parent=None, forked_at=0, head=0),
    )


def test_a_branch_gives_only_messages_of_its_own(retrieval_store, search_scope, task):
    own = retrieval_store.read(search_scope, task, 1, 9)

    assert [(stored.position, stored.message.text) for stored in own] == [(2, "c")]


@pytest.mark.parametrize(
    "stranger", [Scope(namespace="tests", user="u43"), Scope(namespace="tests2", user="u42")]
)
def test_a_stranger_finds_nothing_by_any_id(retrieval_store, search_scope, main, append, stranger):
    (said,) = append("a")
    foreign = SearchScope(scope=stranger, session_id=search_scope.session_id)

    for where in (foreign, SearchScope(scope=stranger)):
        assert retrieval_store.branch_ranges(where) == ()
        assert retrieval_store.read(where, main, 1, 9) == ()
        assert retrieval_store.get(where, [said.id]) == ()


def test_messages_of_another_session_are_not_of_this_one(
    store, scope, retrieval_store, search_scope, append
):
    (said,) = append("a")
    elsewhere = store.sessions.get_or_create(scope, "other")
    other = SearchScope(scope=scope, session_id=elsewhere.id)

    assert retrieval_store.get(other, [said.id]) == ()
    assert retrieval_store.get(search_scope, [said.id]) == (said,)
    assert retrieval_store.get(SearchScope(scope=scope), [said.id, said.id, 999]) == (said,)


@pytest.mark.parametrize("number", [0, -1, 2**70, "1", True])
def test_an_impossible_id_is_one_error_on_every_database(
    retrieval_store, scope, search_scope, number
):
    with pytest.raises((SessionNotFoundError, InvalidInputError)):
        retrieval_store.branch_ranges(SearchScope(scope=scope, session_id=number))
    with pytest.raises(SessionNotFoundError):
        retrieval_store.read(search_scope, number, 1, 2)


def test_vectors_come_back_byte_for_byte_in_the_order_of_their_places(retrieval_store, append):
    one, two = append("a", "b")
    spans = [
        embedding(one, 0.5, -1.0, first=9, last=12),
        embedding(two, 1e-38, 3.0),
        embedding(one, 0.25, 2.0, first=0, last=10),
    ]

    retrieval_store.add_embeddings(MODEL, spans)

    assert retrieval_store.embeddings(MODEL, [two.id, one.id]) == (spans[2], spans[0], spans[1])
    assert retrieval_store.embeddings("mini@2:3", [one.id]) == ()
    assert retrieval_store.embeddings(MODEL, []) == ()


def test_what_is_embedded_already_is_left_as_it_is(retrieval_store, append):
    one, two = append("a", "b")
    retrieval_store.add_embeddings(MODEL, [embedding(one, 1.0)])

    retrieval_store.add_embeddings(MODEL, [embedding(one, 2.0), embedding(two, 3.0)])

    assert retrieval_store.embeddings(MODEL, [one.id, two.id]) == (
        embedding(one, 1.0),
        embedding(two, 3.0),
    )


def test_two_embedders_keep_their_vectors_apart(store, retrieval_store, append):
    (one,) = append("a")

    retrieval_store.add_embeddings("a", [embedding(one, 1.0)])
    retrieval_store.add_embeddings("b", [embedding(one, 2.0, 2.0)])

    assert retrieval_store.embeddings("a", [one.id])[0].vector == vector(1.0)
    assert retrieval_store.embeddings("b", [one.id])[0].vector == vector(2.0, 2.0)
    assert count(store, EmbedderRow) == 2


def test_half_a_number_is_refused_and_nothing_is_stored(store, retrieval_store, append):
    one, two = append("a", "b")
    broken = Embedding(message_id=two.id, first=0, last=1, vector=b"abc")

    with pytest.raises(InvalidInputError, match="3 bytes"):
        retrieval_store.add_embeddings(MODEL, [embedding(one, 1.0), broken])

    assert count(store) == 0


def test_messages_without_a_vector_are_given_in_pages(store, retrieval_store, append):
    said = append(*"abcde")
    foreign = Scope(namespace="elsewhere")
    elsewhere = store.sessions.get_or_create(foreign, "k").main
    store.messages.append(foreign, elsewhere, [say("user", "z")])
    retrieval_store.add_embeddings(MODEL, [embedding(said[1], 1.0), embedding(said[3])])

    first = retrieval_store.not_embedded(MODEL, after=0, limit=2)
    second = retrieval_store.not_embedded(MODEL, after=first[-1].id, limit=2)

    assert (first, second) == ((said[0], said[2]), (said[4],))
    assert retrieval_store.not_embedded("other", after=said[3].id, limit=9) == (said[4],)


def test_a_deleted_message_loses_its_vectors_and_gets_no_new_one(
    store, retrieval_store, search_scope, append
):
    one, two = append("a", "b")
    retrieval_store.add_embeddings(MODEL, [embedding(one, 1.0), embedding(two, 2.0)])

    store.deletion.message(search_scope.scope, one.branch_id, 1)
    retrieval_store.add_embeddings(MODEL, [embedding(one, 1.0)])

    assert retrieval_store.embeddings(MODEL, [one.id, two.id]) == (embedding(two, 2.0),)
    assert retrieval_store.get(search_scope, [one.id, two.id]) == (two,)
    assert retrieval_store.not_embedded(MODEL, after=0, limit=9) == ()


def test_vectors_go_with_their_session(store, scope, retrieval_store, search_scope, append):
    (one,) = append("a")
    retrieval_store.add_embeddings(MODEL, [embedding(one, 1.0)])

    store.deletion.session(scope, search_scope.session_id)
    retrieval_store.add_embeddings(MODEL, [embedding(one, 1.0)])

    assert count(store) == 0
    assert retrieval_store.branch_ranges(search_scope) == ()


def test_many_ids_are_asked_for_at_once(retrieval_store, search_scope, append):
    said = append(*(str(number) for number in range(1200)))
    ids = [stored.id for stored in said]

    retrieval_store.add_embeddings(MODEL, [embedding(stored, 1.0) for stored in said])

    assert len(retrieval_store.embeddings(MODEL, ids)) == 1200
    assert retrieval_store.get(search_scope, ids) == said


def test_two_that_embed_the_same_at_once_store_it_once(shared_url, scope):
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main
        said = store.messages.append(scope, main, [say("user", "x") for _ in range(50)])
        barrier = threading.Barrier(4)

        def embed(number):
            barrier.wait()
            retrieval_store = store.retrieval_store(scope.namespace)
            retrieval_store.add_embeddings(MODEL, [embedding(one, float(number)) for one in said])

        threads = [threading.Thread(target=embed, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert (count(store), count(store, EmbedderRow)) == (50, 1)


def test_files_may_stand_beside_a_database_file_only(url, retrieval_store):
    expected = Path(url.removeprefix("sqlite:///") + "-index") if "agent.db" in url else None

    assert retrieval_store.folder == expected
