"""Old accounts of prompts can go: windows go on as before, and the log says what was purged."""

import random
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest

from agentmem import Budget, InvalidInputError, Memory, Policy
from agentmem.cli import main
from agentmem.retrieval import HybridRetriever
from agentmem.store import downgrade, upgrade
from agentmem.testing import WordCounter
from agentmem.types import TruncationReason

AGE = timedelta(days=30)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LARGE = Budget(context=500, reply=40)


def opened(url, **more):
    budget = Budget(context=200, reply=20)
    retriever = HybridRetriever()
    return Memory.open(url, counter=WordCounter(), budget=budget, retriever=retriever, **more)


def talk(session, num, seed=1):
    rng = random.Random(seed)  # noqa: S311 - a test
    words = [f"w{number}" for number in range(40)]
    for turn in range(num):
        for role in ("user", "assistant"):
            said = " ".join(rng.choice(words) for _ in range(12))
            # Of one moment: recalled lines are shown with the minute.
            session.append(role, said, created_at=NOON)
        session.assemble()
        if turn % 5 == 0:
            session.assemble(budget=LARGE)


def make_older(path, up_to):
    """Date the accounts with numbers up to *up_to* back by a year."""
    then = (datetime.now(UTC) - timedelta(days=365)).replace(tzinfo=None).isoformat(" ")
    connection = sqlite3.connect(path)
    connection.execute("UPDATE assembly SET created_at = ? WHERE id <= ?", (then, up_to))
    connection.commit()
    connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Policy(), Policy(summarizer=None)])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_a_log_that_was_purged_balances_and_the_next_prompts_are_the_same(tmp_path, policy, share):
    texts = []
    for name, is_purged in (("a", False), ("b", True)):
        path = tmp_path / name
        with opened(f"sqlite:///{path}", policy=policy) as memory:
            session = memory.session("s")
            talk(session, 25)
            before = session.assemblies()
            make_older(path, before[int(share * len(before)) - 1].id)
            if is_purged:
                would = memory.purge_log(AGE, dry_run=True)
                assert session.assemblies()[0].id == before[0].id
                assert memory.purge_log(AGE) == would > 0
                assert len(session.assemblies()) == len(before) - would
                assert session.check() == ()
                assert any(one.reason is TruncationReason.PURGED for one in session.truncations())
                assert memory.purge_log(AGE) == 0
            talk(session, 8, seed=2)
            assert session.check() == ()
            texts.append(session.assemble().text)
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_a_purge_after_a_purge_balances_and_each_budget_keeps_its_last_account(tmp_path):
    path = tmp_path / "m.db"
    with opened(f"sqlite:///{path}") as memory:
        session = memory.session("s")
        for seed in range(3):
            talk(session, 12, seed)
            make_older(path, 10_000)
            memory.purge_log(AGE)
            assert session.check() == ()
            last = session.assemblies()
            assert {info.context for info in last} == {200, 500}
            assert len(last) == 2
        heads = {info.context: info.head for info in last}
        assert heads[200] == session.branch.head


@pytest.mark.slow
def test_messages_and_other_namespaces_keep_all_and_subtasks_balance(tmp_path):
    path = tmp_path / "m.db"
    url = f"sqlite:///{path}"
    with opened(url) as memory, opened(url, namespace="other") as other:
        session, beside = memory.session("s"), other.session("s")
        talk(session, 12)
        talk(beside, 12)
        task = session.subtask("t")
        talk(task, 6)
        make_older(path, 10_000)
        said, kept = session.messages(), beside.truncations()
        memory.purge_log(AGE)
        assert session.messages() == said
        assert beside.truncations() == kept
        assert all(audit.problems == () for audit in session.audit())
        with session.subtask("after") as late:
            talk(late, 3)
            assert late.check() == ()


def test_ages_that_are_none_are_refused(tmp_path):
    with opened(f"sqlite:///{tmp_path}/m.db") as memory:
        for age in (timedelta(days=-1), 30, timedelta.max):
            with pytest.raises(InvalidInputError):
                memory.purge_log(age)


@pytest.mark.slow
def test_the_version_before_can_read_a_log_that_was_purged(tmp_path):
    path = tmp_path / "m.db"
    url = f"sqlite:///{path}"
    with opened(url) as memory:
        talk(memory.session("s"), 20)
        make_older(path, 10_000)
        memory.purge_log(AGE)
    downgrade(url, "0009")
    connection = sqlite3.connect(path)
    rules = {rule for (rule,) in connection.execute("SELECT rule FROM truncation")}
    connection.close()
    assert TruncationReason.PURGED not in rules
    upgrade(url)
    with opened(url) as memory:
        assert memory.session("s").check() == ()


def test_the_command_line_purges_logs_alone(tmp_path, monkeypatch, capsys):
    path = tmp_path / "m.db"
    with opened(f"sqlite:///{path}") as memory:
        talk(memory.session("s"), 6)
    make_older(path, 10_000)
    command = ["agentmem", "purge", "--log-older-than", "30d", "--database", f"sqlite:///{path}"]
    for more, said in ((["--dry-run"], "would be deleted"), ([], "are deleted")):
        monkeypatch.setattr("sys.argv", [*command, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        assert f"6 prompt log entries {said}" in capsys.readouterr().out
