import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import inspect, literal_column, select, table, text

from agentmem.errors import InvalidInputError, PinNotFoundError, SessionNotFoundError
from agentmem.protocols import Embedding
from agentmem.store import Store
from agentmem.types import GeneratedIds, Inherit, Origin, PinScope, Scope, ToolCall
from tests.builders import call, result, say
from tests.store.invariants import check
from tests.store.prompt_log.test_prompt_log import prompt_of, summary

NEEDLE = "Zanzibar-7-Krokodil"


def residue(store):
    """Name each table and each file of the database in which the secret is still found."""

    def look(connection):
        tables = inspect(connection).get_table_names()
        return [
            name
            for name in tables
            if has_needle(connection.execute(select(literal_column("*")).select_from(table(name))))
        ]

    tables = store.database.read(look)
    path = store.database.engine.url.database or ""
    is_file = store.database.engine.dialect.name == "sqlite" and path
    files = Path(path).parent.iterdir() if is_file else ()
    return tables + [file.name for file in files if NEEDLE.encode() in file.read_bytes()]


def has_needle(rows):
    cells = [cell for row in rows for cell in row]
    return any(
        NEEDLE in str(cell) or (isinstance(cell, bytes) and NEEDLE.encode() in cell)
        for cell in cells
    )


def embed(store, scope, branches):
    """Give every message a vector that spells the secret."""
    vector = f"{NEEDLE}!".encode()
    retrieval_store = store.retrieval_store(scope.namespace)
    for branch in branches:
        said = store.messages.read(scope, branch)
        retrieval_store.add_embeddings(
            "m", [Embedding(message_id=one.id, first=0, last=9, vector=vector) for one in said]
        )


@pytest.fixture(autouse=True)
def other(store):
    """Somebody else's session, which no deletion may touch."""
    scope = Scope(namespace="tests", user="u43")
    main = store.sessions.get_or_create(scope, "trip").main
    store.messages.append(scope, main, [say("user", "mine")])
    store.pins.set(scope, main, "a", "mine", pin_scope=PinScope.USER)
    yield
    assert store.messages.read(scope, main)[0].message.text == "mine"
    assert store.pins.visible(scope, main)[0].text == "mine"
    check(store)


@pytest.fixture
def secret(store, scope, main, append):
    """A session in which the secret is everywhere."""
    made = ToolCall(id="1", name="look", arguments=f'{{"a": "{NEEDLE}"}}')
    generated = GeneratedIds(fingerprint="m", token_ids=(1, 2))
    append(
        f"I said {NEEDLE} " * 200,
        say("assistant", NEEDLE, tool_calls=(made,), generated=generated, name=NEEDLE),
        result("1", NEEDLE),
        client_key="k",
    )
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=3).id
    append(NEEDLE, branch=task)
    inner = store.sessions.fork(scope, task, name="u", inherit=Inherit.ALL, at=4).id
    append(call("2"), branch=inner)
    embed(store, scope, [main, task])
    for pin_scope in PinScope:
        store.pins.set(scope, task, "a", NEEDLE, pin_scope=pin_scope)
        store.pins.set(scope, task, "a", "harmless", pin_scope=pin_scope)
    summaries = (summary(task, NEEDLE, 1, 4), summary(task, "harmless", 5, 6))
    store.prompt_log.record(scope, prompt_of(task, truncated=True, summaries=summaries))
    assert residue(store)
    return task, inner


def test_a_message_leaves_its_place_and_nothing_it_said(store, scope, main, secret):
    task, _ = secret
    for position in (1, 2, 3):
        gone = store.deletion.message(scope, main, position)
        assert len(gone.messages) == 1
    store.deletion.message(scope, task, 4)
    for pin_scope in PinScope:
        store.deletion.pin(scope, task, "a", pin_scope=pin_scope)

    view = store.messages.read(scope, task)

    assert residue(store) == []
    assert [item.message.role for item in view] == ["user", "assistant", "tool", "user"]
    assert {item.message.text for item in view} == {"[deleted]"}
    assert {item.origin for item in view} == {Origin.DELETED}
    assert [made.id for made in view[1].message.tool_calls] == ["1"]
    assert view[1].message.generated is None
    assert [item.text for item in store.prompt_log.summaries(scope, task)] == ["harmless"]


def test_a_message_is_deleted_where_it_stands(store, scope, main, secret):
    _, inner = secret

    store.deletion.message(scope, inner, 1)

    assert store.messages.read(scope, main, 1, 1)[0].origin is Origin.DELETED


@pytest.mark.parametrize("position", [0, 5, -1, 2**70])
def test_a_message_that_is_not_there_cannot_be_deleted(store, scope, secret, position):
    with pytest.raises(SessionNotFoundError, match="position"):
        store.deletion.message(scope, secret[0], position)


def test_a_branch_goes_with_all_that_was_forked_off_it(store, scope, main, secret):
    task, inner = secret

    gone = store.deletion.branch(scope, task)

    assert gone.branches == (task, inner)
    assert len(gone.messages) == 2
    (left,) = store.sessions.branches(scope, store.sessions.branch(scope, main).session_id)
    assert left.id == main
    with pytest.raises(SessionNotFoundError):
        store.sessions.branch(scope, inner)


def test_the_main_branch_only_goes_with_its_session(store, scope, main):
    with pytest.raises(InvalidInputError, match="delete the session"):
        store.deletion.branch(scope, main)


@pytest.mark.usefixtures("secret")
def test_a_session_leaves_nothing(store, scope, main):
    session_id = store.sessions.branch(scope, main).session_id
    store.deletion.pin(scope, main, "a", pin_scope=PinScope.USER)

    gone = store.deletion.session(scope, session_id)

    assert gone.sessions == (session_id,)
    assert (len(gone.branches), len(gone.messages)) == (3, 5)
    assert store.sessions.list(scope) == ()
    assert residue(store) == []
    assert store.sessions.get_or_create(scope, "trip").id > session_id


@pytest.mark.usefixtures("secret")
def test_a_user_leaves_nothing(store, scope):
    store.deletion.user(scope)

    assert residue(store) == []
    assert store.sessions.list(scope) == ()
    assert store.deletion.user(scope).sessions == ()


def test_nothing_of_another_user_can_be_deleted(store, scope, main, secret):
    stranger = Scope(namespace="tests", user="u44")
    session_id = store.sessions.branch(scope, main).session_id

    for attempt in (
        lambda: store.deletion.session(stranger, session_id),
        lambda: store.deletion.branch(stranger, secret[0]),
        lambda: store.deletion.message(stranger, main, 1),
        lambda: store.deletion.pin(stranger, main, "a"),
    ):
        with pytest.raises(SessionNotFoundError):
            attempt()
    store.deletion.user(stranger)

    assert store.sessions.get(scope, "trip").num_messages == 5


def test_a_pin_that_never_was_cannot_be_deleted(store, scope, main):
    with pytest.raises(PinNotFoundError):
        store.deletion.pin(scope, main, "a")


def test_a_purge_takes_what_is_old_and_only_shows_it_on_a_dry_run(url, scope):
    now = datetime(2026, 1, 1, tzinfo=UTC)
    times = iter([now - timedelta(days=100), now - timedelta(days=100), now])
    keys = ["old", "revived", "new"]
    moment = None
    with Store.open(url, clock=lambda: moment) as store:
        mains = []
        for key in keys:
            moment = next(times)
            mains.append(store.sessions.get_or_create(scope, key).main)
        store.messages.append(scope, mains[1], [say("user", "still here")])
        before = now - timedelta(days=90)

        shown = store.retention.purge(before, dry_run=True)
        elsewhere = store.retention.purge(before, namespace="another")
        gone = store.retention.purge(before, namespace=scope.namespace)

        assert [item.key for item in shown] == ["old"]
        assert elsewhere == ()
        assert gone == shown
        assert gone[0].scope == scope
        assert {info.key for info in store.sessions.list(scope)} == {"revived", "new"}


def test_a_purge_spares_what_became_active_after_it_was_found(url, scope, monkeypatch):
    now = datetime(2026, 6, 1, tzinfo=UTC)
    with Store.open(url, clock=lambda: now) as store:
        for key in ("stays", "goes"):
            store.sessions.get_or_create(scope, key)
        before = now + timedelta(days=90)
        found = store.retention.stale(before)
        now = before  # the first moment that is not before it
        store.messages.append(scope, store.sessions.get(scope, "stays").main, [say("user", "a")])
        monkeypatch.setattr(store.retention, "stale", lambda *_, **__: found)

        gone = store.retention.purge(before)

        assert [session.key for session in found] == ["stays", "goes"]
        assert [session.key for session in gone] == ["goes"]
        assert [session.key for session in store.sessions.list(scope)] == ["stays"]


def test_a_purge_needs_a_time_zone(store):
    with pytest.raises(InvalidInputError, match="time zone"):
        store.retention.purge(datetime(2026, 1, 1))  # noqa: DTZ001 - the point of the test


def test_a_deletion_locks_the_oldest_branch_first(postgres_url, scope):
    """A merge holds the parent before the child; the other order would be a deadlock."""
    lock = text("SELECT id FROM branch WHERE id = :id FOR UPDATE NOWAIT")
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with Store.open(postgres_url) as store:
        info = store.sessions.get_or_create(scope, "trip")
        task = store.sessions.fork(scope, info.main, name="t", inherit=Inherit.ALL, at=0).id
        deletion = threading.Thread(target=store.deletion.session, args=(scope, info.id))
        with store.database.engine.connect() as parent, store.database.engine.connect() as child:
            parent.execute(lock, {"id": info.main})
            deletion.start()
            while not child.execute(waiting).scalar_one():
                # Within a transaction the server tells the same again and again.
                child.rollback()
                time.sleep(0.01)

            free = child.execute(lock, {"id": task}).scalar_one()

        deletion.join()
        assert free == task
        assert store.sessions.list(scope) == ()
