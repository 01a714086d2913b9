"""Vectors in PostgreSQL's own tables find what those in memory find."""

import logging
import random

import numpy as np
import psycopg
import pytest
from alembic import command
from sqlalchemy import create_engine

from agentmem.protocols import Embedding, Query, SearchScope
from agentmem.retrieval import HybridRetriever
from agentmem.store import Store, downgrade, upgrade
from agentmem.store.database import alembic_runner
from agentmem.store.database.urls import parse_url
from agentmem.testing import HashingEmbedder
from agentmem.types import Inherit
from tests.builders import say
from tests.store.vectors.kills import SCOPE, USER, ask

WORDS = ("hotel", "train", "museum", "red", "blue", "Lisbon", "Porto", "cheap", "early", "late")


@pytest.fixture
def pg_url(postgres_url):
    """Of a database with the extension; without one again when the test is over."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    yield postgres_url
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("DROP EXTENSION vector CASCADE")
        for (name,) in connection.execute(
            "SELECT tablename FROM pg_tables WHERE tablename LIKE 'embedding\\_vector\\_%'"
        ).fetchall():
            connection.execute(f"DROP TABLE {name}")


def open_recall(store, dimension=48):
    embedder = HashingEmbedder(dimension=dimension, max_chars=80)
    return HybridRetriever(embedder).open_index(store.retrieval_store(SCOPE.namespace))


def fill(store):
    """The same conversation in every database."""
    choose = random.Random(7)  # noqa: S311 - the same each time
    session = store.sessions.get_or_create(SCOPE, "trip")
    other = store.sessions.get_or_create(SCOPE, "other")
    for number in range(60):
        words = [choose.choice(WORDS) for _ in range(choose.choice((2, 5, 30)))]
        branch = session.main if number % 3 else other.main
        store.messages.append(SCOPE, branch, [say("user", " ".join(words))])
    task = store.sessions.fork(SCOPE, session.main, name="t", inherit=Inherit.ALL, at=20)
    store.messages.append(SCOPE, task.id, [say("user", "a cheap hotel in Porto")])
    return session


def hits_of(url, *, alone):
    with Store.open(url) as store:
        session = fill(store)
        recall = open_recall(store)
        assert recall.wait(60)
        search_scope = SearchScope(scope=SCOPE, session_id=session.id if alone else None)
        kind = recall.status(search_scope).kind
        found = []
        for text in ("cheap hotel", "train to Lisbon", "early museum", "blue or red", "Porto"):
            query = Query(
                text=text,
                search_scope=search_scope,
                session_id=session.id,
                visible={session.main: (1, 30)},
                limit=15,
            )
            hits = recall.search(query)
            found.append([(hit.stored.position, hit.score, hit.ranks) for hit in hits])
            assert all("dense" in hit.ranks for hit in hits)
        recall.close()
    return kind, found


@pytest.mark.parametrize("alone", [True, False])
def test_the_ranking_is_that_of_sqlite_and_memory(pg_url, tmp_path, alone):
    in_memory = hits_of(f"sqlite:///{tmp_path / 'agent.db'}", alone=alone)
    in_database = hits_of(pg_url, alone=alone)

    assert (in_memory[0], in_database[0]) == ("flat", "in the database")
    assert in_memory[1] == in_database[1]


def test_what_is_deleted_leaves_the_table(pg_url):
    with Store.open(pg_url) as store:
        session = fill(store)
        recall = open_recall(store)
        assert recall.wait(60)
        assert recall.search(ask(session, "hotel"))
        assert count_rows(pg_url, 48) >= 61

        gone = store.deletion.message(SCOPE, session.main, 1)
        recall.forget(SCOPE, gone.messages)
        assert ids_in(pg_url, 48).isdisjoint(gone.messages)
        gone = store.deletion.session(SCOPE, session.id)
        recall.forget(SCOPE, gone.messages)
        assert ids_in(pg_url, 48).isdisjoint(gone.messages)
        store.deletion.user(SCOPE)
        assert count_rows(pg_url, 48) == 0
        assert recall.search(ask(session, "hotel")) == ()
        recall.close()


def test_scores_are_those_of_a_dot_product(pg_url):
    vectors = np.random.default_rng(3).standard_normal((5, 8)).astype("<f4")
    with Store.open(pg_url) as store:
        session = store.sessions.get_or_create(SCOPE, "trip")
        said = [say("user", str(number)) for number in range(5)]
        ids = [one.id for one in store.messages.append(SCOPE, session.main, said)]
        retrieval_store = store.retrieval_store(SCOPE.namespace)
        retrieval_store.add_embeddings(
            "m", [embedding(ids[0], vectors[0]), embedding(ids[1], vectors[1])]
        )
        retrieval_store.add_embeddings(
            "m", [embedding(ids[2], vectors[2]), embedding(ids[2], vectors[3], 4)]
        )
        retrieval_store.add_embeddings(
            "m", [embedding(ids[3], vectors[:0]), embedding(ids[4], vectors[4, :5])]
        )
        table = retrieval_store.table("m", 8)

        assert table.fill(ids) == dict(zip(ids, (True, True, True, False, False), strict=True))
        assert table.fill(ids[:1]) == {ids[0]: True}

        found = table.search(vectors[4].tobytes(), ids[:3], 9)
        scores = vectors[:4] @ vectors[4]
        expected = {ids[0]: scores[0], ids[1]: scores[1], ids[2]: max(scores[2:])}
        assert dict(found) == pytest.approx(expected, rel=1e-5)
        assert [one for one, _ in found] == sorted(expected, key=expected.get, reverse=True)
        assert table.search(vectors[4].tobytes(), ids[:3], 1) == found[:1]
        assert table.search(vectors[4].tobytes(), [], 9) == []


def embedding(message_id, vector, first=0):
    return Embedding(message_id=message_id, first=first, last=first, vector=vector.tobytes())


def test_without_the_extension_vectors_are_compared_in_memory(postgres_url):
    with Store.open(postgres_url) as store:
        session = fill(store)
        recall = open_recall(store)
        assert recall.wait(60)

        assert recall.search(ask(session, "hotel"))
        assert recall.status(USER).kind == "flat"
        recall.close()


def test_a_table_that_cannot_be_made_is_told_and_done_without(pg_url, caplog):
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("CREATE TYPE embedding_vector_9 AS ENUM ('in the way')")
    with Store.open(pg_url) as store, caplog.at_level(logging.WARNING):
        assert store.retrieval_store("tests").table("m", 20000) is None
        assert caplog.text == ""
        assert store.retrieval_store("tests").table("m", 9) is None
    assert "searching vectors in memory" in caplog.text
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute("DROP TYPE embedding_vector_9")


def test_migrations_take_no_notice_of_the_table_and_a_downgrade_drops_it(pg_url):
    with Store.open(pg_url) as store:
        session = fill(store)
        recall = open_recall(store)
        assert recall.wait(60)
        recall.search(ask(session, "hotel"))
        recall.close()

    engine = create_engine(parse_url(pg_url))
    with engine.begin() as connection:
        command.check(alembic_runner.config(connection))
    engine.dispose()
    downgrade(pg_url, "0002")
    upgrade(pg_url)

    with Store.open(pg_url) as store:
        recall = open_recall(store)
        assert recall.wait(60)
        assert recall.search(ask(session, "hotel"))[0].ranks.keys() == {"lexical", "dense"}
        recall.close()


def count_rows(url, dimension):
    return len(ids_in(url, dimension))


def ids_in(url, dimension):
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT message_id FROM embedding_vector_{dimension}")  # noqa: S608
        return {message_id for (message_id,) in rows}
