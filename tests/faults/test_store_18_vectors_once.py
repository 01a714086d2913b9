"""Where PostgreSQL compares vectors itself, each is kept once, and none is lost for good."""

import psycopg
import pytest

from agentmem.protocols import SearchScope
from agentmem.store import Store, downgrade, head, upgrade
from tests.builders import say
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401 - fixtures
from tests.store.vectors.kills import SCOPE, ask
from tests.store.vectors.test_pgvector import fill, open_recall

MARKER = b"\1"


@pytest.fixture
def url(new_postgres_url):  # noqa: F811
    run(new_postgres_url, "CREATE EXTENSION vector")
    return new_postgres_url


def run(url, *statements):
    with psycopg.connect(url, autocommit=True) as connection:
        rows = [connection.execute(one) for one in statements][-1]
        return rows.fetchall() if rows.description else []


def search(url, text="cheap hotel in Porto", *, wait=60):
    """Return what is found by meaning, once all is embedded."""
    with Store.open(url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        recall = open_recall(store)
        recall.search(ask(session, text))
        assert recall.wait(wait)
        hits = recall.search(ask(session, text))
        status = recall.status(SearchScope(scope=SCOPE, session_id=session.id))
        recall.close()
    assert (status.num_pending, status.last_error) == (0, None)
    assert status.num_embedded == status.num_messages
    return status.kind, [
        (one.stored.id, round(one.score, 5), one.ranks.get("dense")) for one in hits
    ]


def stored(url):
    """Return the vectors in embeddings by their place, and the places of those in the table."""
    kept = run(url, "SELECT message_id, first, vector FROM embedding ORDER BY 1, 2")
    table = run(url, "SELECT message_id, first FROM embedding_vector_48 ORDER BY 1, 2")
    return {(one, first): bytes(vector) for one, first, vector in kept}, set(table)


@pytest.fixture
def filled(url):
    with Store.open(url) as store:
        fill(store)
    return url


def test_a_vector_is_in_one_place_whenever_it_came(filled):
    kind, found = search(filled)
    kept, table = stored(filled)
    assert kind == "in the database"
    assert set(kept.values()) == {MARKER}
    assert table == set(kept)

    with Store.open(filled) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        recall = open_recall(store)
        recall.search(ask(session, "hotel"))
        store.messages.append(SCOPE, session.main, [say("user", "a new museum")])
        recall.added()
        assert recall.wait(60)
        recall.close()
    again, table_again = stored(filled)
    assert len(again) == len(kept) + 1
    assert set(again.values()) == {MARKER}
    assert table_again == set(again)
    assert found


def test_what_is_read_back_is_what_was_stored_byte_for_byte(filled, tmp_path):
    search(filled)
    kept, _ = stored(filled)
    ids = sorted({one for one, _ in kept})
    fingerprint = "hashing:48:80"
    other = f"sqlite:///{tmp_path / 'm.db'}"
    with Store.open(other) as store:
        fill(store)
        recall = open_recall(store)
        assert recall.wait(60)
        recall.close()
        right = {(e.message_id, e.first): e.vector for e in embeddings(store, fingerprint, ids)}

    for read_only in (False, True):
        with Store.open(filled, read_only=read_only) as store:
            found = embeddings(store, fingerprint, ids)
        assert {(e.message_id, e.first): e.vector for e in found} == right


def embeddings(store, fingerprint, ids):
    return store.retrieval_store(SCOPE.namespace).embeddings(fingerprint, ids)


def test_the_way_down_writes_them_out_and_the_way_up_moves_them_again(filled):
    before = search(filled)
    places = set(stored(filled)[0])

    downgrade(filled, "0013")
    kept, _ = stored(filled)
    assert set(kept) == places
    assert {len(vector) for vector in kept.values()} == {4 * 48}
    assert upgrade(filled) == head()

    kept, table = stored(filled)
    assert set(kept.values()) == {MARKER}
    assert table == places
    assert search(filled) == before


@pytest.mark.parametrize(
    "harm",
    [
        ["DROP EXTENSION vector CASCADE"],
        ["DROP EXTENSION vector CASCADE", "DROP TABLE embedding_vector_48"],
        ["DROP EXTENSION vector CASCADE", "CREATE EXTENSION vector"],
        ["DROP TABLE embedding_vector_48"],
        ["DELETE FROM embedding_vector_48 WHERE message_id % 2 = 0"],
    ],
    ids=["extension", "extension and table", "new extension", "table", "rows"],
)
def test_what_was_lost_with_a_table_is_embedded_again(filled, harm):
    kind, before = search(filled)
    run(filled, *harm)

    kind, found = search(filled)

    is_there = "CREATE" in harm[-1] or "EXTENSION" not in harm[0]
    assert kind == ("in the database" if is_there else "flat")
    assert [one[0] for one in found] == [one[0] for one in before]


def test_a_table_that_goes_while_it_is_used_stops_no_embedding(filled):
    with Store.open(filled) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        recall = open_recall(store)
        recall.search(ask(session, "hotel"))
        run(filled, "DROP EXTENSION vector CASCADE")
        assert recall.wait(60)
        recall.close()

    assert search(filled)[0] == "flat"


def test_a_message_takes_less_than_its_vector_and_half_as_much(url):
    with Store.open(url) as store:
        fill(store)
        session = store.sessions.get_or_create(SCOPE, "trip")
        recall = open_recall(store, dimension=384)
        recall.search(ask(session, "hotel"))
        assert recall.wait(60)
        recall.search(ask(session, "hotel"))
        recall.close()
    run(url, "VACUUM FULL embedding", "VACUUM FULL embedding_vector_384")

    size = "SELECT sum(pg_relation_size(c)) FROM unnest(ARRAY[{}]::regclass[]) c"
    ((num_bytes,),) = run(url, size.format("'embedding', 'embedding_vector_384'"))
    ((num,),) = run(url, "SELECT count(*) FROM embedding")
    assert num_bytes / num < 1.5 * 4 * 384
