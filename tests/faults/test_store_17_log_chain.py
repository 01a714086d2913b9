"""Edits of the log of prompts, of summaries and of a user's pins are named, purges are entries."""

import contextlib
import hashlib
import sqlite3
from datetime import UTC, datetime, timedelta
from functools import partial

import integrity_edits as bench
import pytest

from agentmem import Budget, Memory
from agentmem.store import downgrade, upgrade
from agentmem.store.database.hashing import digest
from agentmem.testing import WordCounter
from tests.store.conftest import new_postgres_url, postgres  # noqa: F401 - fixtures

AGE = timedelta(days=30)


@pytest.fixture(scope="module")
def edited(tmp_path_factory):
    return bench.Bench(f"sqlite:///{tmp_path_factory.mktemp('edits')}/agent.db")


@pytest.mark.slow
@pytest.mark.parametrize("edit", bench.EDITS)
@pytest.mark.parametrize("name", bench.SERIES)
def test_an_edit_of_what_a_session_has_is_named(edited, name, edit):
    try:
        edited.raw(lambda connection: getattr(bench.Edits(name, connection), edit)())
        with bench.open_memory(edited.url) as memory:
            found = memory.find("trip", user="ann").check(integrity=True)
            assert memory.find("trip", user="bob").check(integrity=True) == ()
    finally:
        edited.raw(partial(bench.restore, edited.clean))

    assert found
    words = {"prompts": "prompt ", "records": "prompt ", "summaries": "summary of "}
    assert any(words.get(name, "") in one.problem for one in found)


def opened(path):
    budget = Budget(context=500, reply=20)
    return Memory.open(f"sqlite:///{path}", counter=WordCounter(), budget=budget)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "agent.db"


@pytest.fixture
def memory(path):
    with opened(path) as memory:
        bench.fill(memory, "ann", turns=24)
        yield memory


def trip(memory):
    return memory.find("trip", user="ann")


def run(path, *statements):
    with contextlib.closing(sqlite3.connect(path)) as raw:
        for statement in statements:
            raw.execute(statement)
        raw.commit()


def make_older(path, up_to):
    """Date accounts back, as if they had been made a year ago, and chain them as they are then."""
    then = (datetime.now(UTC) - timedelta(days=365)).replace(tzinfo=None).isoformat(" ")
    run(path, f"UPDATE assembly SET created_at = '{then}' WHERE id <= {up_to}")  # noqa: S608 - our own words
    url = f"sqlite:///{path}"
    downgrade(url, "0012")
    upgrade(url)


@pytest.mark.slow
def test_what_the_library_does_agrees_with_the_chain(memory):
    session = trip(memory)
    head = session.head()
    with session.subtask("compare", inherit="all") as task:
        task.append("user", "Which one?")
        task.assemble()
        task.pin("mine", "x", scope="user")
    covered = session.summaries()[0]
    session.delete_message(covered.first)
    session.undo_pin("home", scope="user")
    session.unpin("home", scope="user")
    session.delete_pin("home", scope="user")
    session.edit(5, "Something else.")
    session.assemble()

    assert covered.text not in {one.text for one in session.summaries()}
    assert session.check(integrity=True, head=head) == ()
    assert session.check(head=session.head(key="k"), key="k") == ()
    assert all(not one.discrepancies for one in session.audit(integrity=True))


@pytest.mark.slow
def test_a_summary_does_not_come_back_once_its_text_is_deleted(memory, path):
    session = trip(memory)
    covered = session.summaries()[0]
    session.delete_message(covered.first)
    assert session.check(integrity=True) == ()
    run(path, f"UPDATE summary SET text = 'It was fine.' WHERE key = '{covered.key}'")  # noqa: S608 - our own words

    assert f"{covered.first} to {covered.last}" in session.check(integrity=True)[0].problem


@pytest.mark.slow
def test_a_purge_of_the_log_is_an_entry_and_hides_no_edit(path):
    with opened(path) as memory:
        bench.fill(memory, "ann", turns=24)
        num = len(trip(memory).assemblies())
    make_older(path, num - 6)
    with opened(path) as memory:
        session = trip(memory)
        before, last = session.head(), session.assemblies()[-1].id
        assert memory.purge_log(AGE) > 0
        assert session.check(integrity=True, head=before) == ()
        bench.fill(memory, "ann", turns=3)
        middle = session.head()
        assert session.check(head=middle) == ()
        memory.export(path.with_name("e.jsonl"), user="ann")
        run(path, f"UPDATE assembly SET prompt_hash = '0' WHERE id = {last}")  # noqa: S608 - our own words
        (found,) = session.check(integrity=True)
        assert (found.assembly_id, found.position) == (last, None)
        memory.purge_log(timedelta(0))
        assert session.check(integrity=True) == ()
        for name in ("hotel", "night"):
            session.append("user", name)
            session.assemble()
        assert session.check(integrity=True, head=before) == ()
    with Memory.open("sqlite://", counter=WordCounter()) as memory:
        memory.load(path.with_name("e.jsonl"), user="eve")
        assert memory.find("trip", user="eve").check(integrity=True) == ()
        memory.load(path.with_name("e.jsonl"))
        assert trip(memory).check(head=middle) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        "DELETE FROM assembly WHERE id = (SELECT min(id) FROM assembly)",
        "DELETE FROM truncation WHERE rule LIKE '%purged%'",
        "UPDATE truncation SET first = 1 WHERE rule LIKE '%purged%'",
        "UPDATE event SET content = replace(content, '[[0, ', '[[1, ') WHERE kind = 'log'",
        "DELETE FROM event WHERE kind = 'log'",
    ],
)
def test_an_edit_of_what_a_purge_left_is_named(memory, path, edit):
    assert memory.purge_log(timedelta(0)) > 0
    assert trip(memory).check(integrity=True) == ()
    run(path, edit)

    assert trip(memory).check(integrity=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    "edit",
    [
        "UPDATE pin SET version = 1 WHERE scope = 'user'",
        "UPDATE pin SET version = 1 WHERE scope = 'session'",
        "UPDATE pin SET target_id = target_id + 1 WHERE scope = 'user'",
        "UPDATE pin SET scope = 'session', target_id = 1, session_id = 1 WHERE scope = 'user'",
        "DELETE FROM pin WHERE scope = 'user'",
        "DELETE FROM user_event",
        "UPDATE owner SET chain = NULL",
        "UPDATE branch SET log_chain = NULL",
        "UPDATE branch SET log_chain = chain",
        "UPDATE assembly SET link = NULL",
        "UPDATE summary SET first = 'x'",
    ],
)
def test_what_hangs_elsewhere_or_lost_its_chain_is_named(memory, path, edit):
    run(path, edit)

    assert trip(memory).check(integrity=True)


@pytest.mark.slow
def test_a_database_of_before_keeps_its_log_and_goes_on(path):
    url = f"sqlite:///{path}"
    with opened(path) as memory:
        bench.fill(memory, "ann", turns=24)
        memory.purge_log(timedelta(0))
        old = trip(memory).assemblies()
    downgrade(url, "0012")
    upgrade(url)
    with opened(path) as memory:
        session = trip(memory)
        assert session.check(integrity=True) == ()
        bench.fill(memory, "ann", turns=3)
        assert session.assemblies()[: len(old)] == old
        assert session.check(integrity=True, head=session.head()) == ()


@pytest.mark.slow
def test_a_head_of_before_there_was_a_log_in_it_holds_still(memory, path):
    session = trip(memory)
    short = session.head().split(":")[1].partition("+")[0].rpartition(".")[0]
    with contextlib.closing(sqlite3.connect(path)) as raw:
        (chain,) = raw.execute("SELECT chain FROM branch").fetchone()
    sealed = hashlib.sha256(digest("head", short, chain)).hexdigest()
    session.append("user", "More.")

    assert session.check(head=f"sha256:{short}:{sealed}") == ()
    assert session.check(head=f"sha256:{short}:{sealed[::-1]}")


@pytest.mark.slow
def test_both_databases_chain_the_log_alike(request, tmp_path):
    file = tmp_path / "e.jsonl"
    url = request.getfixturevalue("new_postgres_url")
    budget = Budget(context=500, reply=20)
    with Memory.open(url, counter=WordCounter(), budget=budget) as memory:
        bench.fill(memory, "ann", turns=20)
        memory.purge_log(timedelta(0))
        bench.fill(memory, "ann", turns=2)
        head = trip(memory).head()
        assert trip(memory).summaries()
        assert trip(memory).check(integrity=True, head=head) == ()
        memory.export(file)
    with Memory.open("sqlite://", counter=WordCounter(), budget=budget) as memory:
        assert memory.load(file).unproven == ()
        bench.fill(memory, "ann", turns=2)
        assert trip(memory).check(integrity=True, head=head) == ()
