import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from sqlalchemy import delete

from agentmem.context import check_conservation
from agentmem.errors import ConflictError, InvalidInputError, SessionNotFoundError
from agentmem.store import Store
from agentmem.store.database.schema import MessageRow
from agentmem.store.prompt_log.summaries import Sources
from agentmem.types import (
    DisplayForm,
    Inherit,
    Prompt,
    Reuse,
    Scope,
    Span,
    Summary,
    Tier,
    TruncationReason,
    TruncationRecord,
    freeze,
)
from tests.builders import say
from tests.store.invariants import check
from tests.store.processes import finish, run_together, start


def prompt_of(branch_id, *, head=3, truncated=False, **fields):
    record = TruncationRecord(
        branch_id=branch_id,
        first=1,
        last=2,
        tier=Tier.RECENT,
        reason=TruncationReason.WINDOW,
        num_tokens=None,
        room=17,
        destination="store",
    )
    values = {
        "branch_id": branch_id,
        "head": head,
        "messages": (),
        "text": "hello",
        "token_ids": (1, 2, 3),
        "tokens_by_tier": freeze({Tier.CURRENT: 2, Tier.PINNED: 1}),
        "layout": (
            Span(first=1, last=2, tier=None),
            Span(first=3, last=3, tier=Tier.CURRENT),
        ),
        "truncations": (record,) if truncated else (),
        "summaries": (),
        "pins": (("session/role", 2),),
        "reuse": Reuse(common_tokens=0, broken_by=None),
        "context": 100,
        "reply": 20,
        "fingerprint": "m@1",
    }
    return Prompt(**{**values, **fields})


@pytest.fixture
def last(store, scope):
    def newest(branch_id, *, context=100, reply=20, fingerprint="m@1"):
        return store.prompt_log.last(
            scope, branch_id, context=context, reply=reply, fingerprint=fingerprint
        )

    return newest


def test_a_prompt_is_logged_with_what_it_left_out(store, scope, main, last):
    prompt = prompt_of(main, truncated=True)

    logged = store.prompt_log.record(scope, prompt)

    info = last(main)
    assert info.id == logged.assembly_id
    assert (info.head, info.layout, info.tokens_by_tier) == (
        prompt.head,
        prompt.layout,
        prompt.tokens_by_tier,
    )
    assert (info.prompt_hash, info.context, info.reply) == (prompt.prompt_hash, 100, 20)
    session_id = store.sessions.branch(scope, main).session_id
    (record,) = store.prompt_log.truncations(scope, session_id)
    assert record == logged.truncations[0]
    assert replace(record, assembly_id=None, created_at=None) == prompt.truncations[0]
    assert (record.assembly_id, record.created_at) == (info.id, info.created_at)


def test_the_last_prompt_is_that_of_the_same_budget_and_counter(store, scope, main, last):
    first = store.prompt_log.record(scope, prompt_of(main))
    store.prompt_log.record(scope, prompt_of(main, context=200))
    store.prompt_log.record(scope, prompt_of(main, reply=21))
    store.prompt_log.record(scope, prompt_of(main, fingerprint="m@2"))

    assert last(main).id == first.assembly_id
    assert last(main, context=300) is None
    newer = store.prompt_log.record(scope, prompt_of(main, head=4))
    assert last(main).id == newer.assembly_id


def test_the_log_of_a_session_is_in_order_and_by_branch(store, scope, main):
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=0)
    for branch_id in (main, task.id, main):
        store.prompt_log.record(scope, prompt_of(branch_id, truncated=True))

    infos = store.prompt_log.assemblies(scope, task.session_id)
    records = store.prompt_log.truncations(scope, task.session_id)
    own = store.prompt_log.truncations(scope, task.session_id, branch_id=task.id)

    assert [info.branch_id for info in infos] == [main, task.id, main]
    assert [record.assembly_id for record in records] == [info.id for info in infos]
    assert own == (records[1],)


def test_a_record_of_another_branch_is_refused_with_its_prompt(store, scope, main, last):
    prompt = prompt_of(main, truncated=True)
    stray = replace(prompt.truncations[0], branch_id=main + 1)

    with pytest.raises(InvalidInputError):
        store.prompt_log.record(scope, replace(prompt, truncations=(stray,)))

    assert last(main) is None


def test_the_log_of_another_user_is_not_there(store, scope, main):
    session_id = store.sessions.branch(scope, main).session_id
    other = Scope(namespace="other", user=scope.user)

    with pytest.raises(SessionNotFoundError):
        store.prompt_log.record(other, prompt_of(main))
    with pytest.raises(SessionNotFoundError):
        store.prompt_log.last(other, main, context=100, reply=20, fingerprint="m@1")
    with pytest.raises(SessionNotFoundError):
        store.prompt_log.assemblies(other, session_id)
    with pytest.raises(SessionNotFoundError):
        store.prompt_log.truncations(other, session_id)


def summary(branch_id, text="short", first=1, last=2):
    return Summary(
        branch_id=branch_id,
        first=first,
        last=last,
        level=0,
        text=text,
        author="test",
        source_hash="0",
    )


def test_summaries_are_written_with_the_prompt_that_first_shows_them(store, scope, main):
    one, two = summary(main), summary(main, "more", 3, 4)
    layout = (
        Span(first=1, last=2, tier=Tier.SUMMARY, source=one.key),
        Span(first=3, last=3, tier=Tier.CURRENT, form=DisplayForm.CLIPPED, kept_chars=7),
    )

    store.prompt_log.record(scope, prompt_of(main, summaries=(one,), layout=layout))
    store.prompt_log.record(scope, prompt_of(main, summaries=(one, two), layout=layout))

    assert store.prompt_log.summaries(scope, main) == (one, two)
    assert store.prompt_log.summaries(scope, main, [two.key, "none", one.key]) == (two, one)
    assert store.prompt_log.newest(scope, main).layout == layout
    assert store.prompt_log.newest(scope, main).pins == (("session/role", 2),)


@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_summary_may_cover_a_message_that_was_lost_and_none_that_was_deleted(
    store, scope, main, is_deleted
):
    """A lost message is shown by a stand-in, which is in no row that could be counted."""
    first, _ = store.messages.append(scope, main, [say("user", "a"), say("user", "b")])
    if not is_deleted:
        lose = delete(MessageRow).where(MessageRow.id == first.id)
        store.database.write(lambda connection: connection.execute(lose))
    sources = Sources(messages=store.messages.read(scope, main))
    if is_deleted:
        store.deletion.message(scope, main, 1)

    made = prompt_of(main, summaries=(summary(main),))
    if is_deleted:
        with pytest.raises(ConflictError, match="1 messages"):
            store.prompt_log.record(scope, made, sources=sources)
    else:
        store.prompt_log.record(scope, made, sources=sources)
    assert len(store.prompt_log.summaries(scope, main)) == (0 if is_deleted else 1)


def test_a_summary_of_a_message_that_was_replaced_meanwhile_is_not_stored(store, scope, main):
    store.messages.append(scope, main, [say("user", "a"), say("user", "b")])
    messages = store.messages.read(scope, main)
    store.replacements.add(scope, main, 1, 2)
    made = prompt_of(main, head=2, summaries=(summary(main),))

    with pytest.raises(ConflictError, match="message 1, which a summary covers, was replaced"):
        store.prompt_log.record(scope, made, sources=Sources(messages=messages))

    known = Sources(messages=messages, superseded={1})
    store.prompt_log.record(scope, made, sources=known)
    assert len(store.prompt_log.summaries(scope, main)) == 1


def test_a_subtask_reads_its_parents_summaries_and_does_not_write_them_again(store, scope, main):
    store.prompt_log.record(scope, prompt_of(main, summaries=(summary(main),)))
    store.messages.append(scope, main, [say("user", "a")])
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=1)

    store.prompt_log.record(scope, prompt_of(task.id, summaries=(summary(main),)))

    assert store.prompt_log.summaries(scope, task.id) == ()
    assert store.prompt_log.summaries(scope, task.id, [summary(main).key]) == (summary(main),)


def test_the_last_prompt_up_to_a_position_is_the_one_of_then(store, scope, main):
    keys = {"context": 100, "reply": 20, "fingerprint": "m@1"}
    early = store.prompt_log.record(scope, prompt_of(main, head=3))
    store.prompt_log.record(scope, prompt_of(main, head=5))

    assert store.prompt_log.last(scope, main, **keys, up_to=4).id == early.assembly_id
    assert store.prompt_log.last(scope, main, **keys, up_to=2) is None


def test_a_purged_log_keeps_the_last_prompt_and_names_what_it_does_not_show(store, scope, main):
    layout = (Span(first=1, last=2, tier=None), Span(first=3, last=3, tier=Tier.CURRENT))
    for truncated in (True, False, False):
        store.prompt_log.record(scope, prompt_of(main, layout=layout, truncated=truncated))
    session_id = store.sessions.branch(scope, main).session_id
    before = datetime.now(UTC) + timedelta(days=400)
    purge = partial(store.retention.purge_log, before, namespace=scope.namespace)

    assert (purge(dry_run=True), purge(), purge()) == (2, 2, 0)

    (kept,) = store.prompt_log.assemblies(scope, session_id)
    (record,) = store.prompt_log.truncations(scope, session_id)
    assert (record.first, record.last, record.reason) == (1, 2, TruncationReason.PURGED)
    assert check_conservation((kept,), (record,)) == ()


def test_a_purge_names_exactly_what_the_last_prompts_own_records_leave_unnamed(store, scope, main):
    """A position that is named twice passes the conservation check, so it is looked at here."""
    layout = (Span(first=1, last=6, tier=None), Span(first=7, last=7, tier=Tier.CURRENT))
    (window,) = prompt_of(main, truncated=True).truncations
    for first, last in ((1, 6), (3, 4)):
        own = (replace(window, first=first, last=last),)
        store.prompt_log.record(scope, prompt_of(main, head=7, layout=layout, truncations=own))
    session_id = store.sessions.branch(scope, main).session_id

    store.retention.purge_log(datetime.now(UTC) + timedelta(days=400), namespace=scope.namespace)

    records = store.prompt_log.truncations(scope, session_id)
    assert {(one.first, one.last, one.reason) for one in records} == {
        (1, 2, TruncationReason.PURGED),
        (3, 4, TruncationReason.WINDOW),
        (5, 6, TruncationReason.PURGED),
    }


def test_writers_that_show_the_same_new_summary_all_log_it_and_store_it_once(store, scope, main):
    number, turns = 4, 6
    gate = threading.Barrier(number, timeout=20)

    def work(index):
        for turn in range(turns):
            gate.wait()
            shared = (summary(main, f"turn {turn}"), summary(main, f"{index}-{turn}"))
            store.prompt_log.record(scope, prompt_of(main, summaries=shared, truncated=True))

    assert run_together(*(partial(work, index) for index in range(number))) == []

    session_id = store.sessions.branch(scope, main).session_id
    assert len(store.prompt_log.assemblies(scope, session_id)) == number * turns
    assert len(store.prompt_log.truncations(scope, session_id)) == number * turns
    written = sorted(item.text for item in store.prompt_log.summaries(scope, main))
    own = [f"{index}-{turn}" for index in range(number) for turn in range(turns)]
    assert written == sorted(own + [f"turn {turn}" for turn in range(turns)])
    check(store)


def test_one_of_many_goes_on_from_the_same_prompt(store, scope, main, last):
    """The others are told, and leave neither prompt nor summary behind."""
    number = 4
    gate = threading.Barrier(number, timeout=20)
    before, won = None, []
    for turn in range(5):

        def work(index, turn=turn, before=before):
            gate.wait()
            shown = (summary(main, f"{index}-{turn}"),)
            try:
                store.prompt_log.record(scope, prompt_of(main, summaries=shown), after=before)
                won.append(f"{index}-{turn}")
            except ConflictError:
                pass

        assert run_together(*(partial(work, index) for index in range(number))) == []
        assert len(won) == turn + 1
        before = last(main).id

    assert sorted(item.text for item in store.prompt_log.summaries(scope, main)) == sorted(won)


RECORD_MANY = """
import sys
from agentmem.store import Store
from agentmem.types import BranchId, Scope
from tests.store.prompt_log.test_prompt_log import prompt_of, summary

url, branch = sys.argv[1], BranchId(int(sys.argv[2]))
with Store.open(url) as store:
    for turn in range(20):
        prompt = prompt_of(branch, summaries=(summary(branch, str(turn)),))
        store.prompt_log.record(Scope(namespace="tests", user="u42"), prompt)
"""


@pytest.mark.slow
def test_processes_that_show_the_same_new_summaries_all_log_them(shared_url, scope):
    with Store.open(shared_url) as store:
        main = store.sessions.get_or_create(scope, "trip").main

        for process in [start(RECORD_MANY, shared_url, main) for _ in range(3)]:
            finish(process)

        session_id = store.sessions.branch(scope, main).session_id
        assert len(store.prompt_log.assemblies(scope, session_id)) == 60
        assert len(store.prompt_log.summaries(scope, main)) == 20
        check(store)


def test_messages_are_written_durably_and_the_log_of_prompts_is_not(
    store, scope, main, monkeypatch
):
    seen = []
    write = store.database.write

    def watched(work, *, durable=True):
        seen.append(durable)
        return write(work, durable=durable)

    monkeypatch.setattr(store.database, "write", watched)

    store.messages.append(scope, main, [say("user", "hi")])
    store.prompt_log.record(scope, prompt_of(main))

    assert seen == [True, False]
