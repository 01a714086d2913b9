import hashlib
import json
from dataclasses import replace

import pytest

from agentmem.errors import (
    ConflictError,
    DamagedFileError,
    InvalidInputError,
    SessionNotFoundError,
)
from agentmem.store import Store
from agentmem.types import GeneratedIds, Inherit, PinScope, Scope
from tests.builders import call, result, say
from tests.store.invariants import check
from tests.store.prompt_log.test_prompt_log import prompt_of, summary

pytestmark = pytest.mark.usefixtures("told")


@pytest.fixture
def told(store, scope, main, append):
    """A session that uses every table."""
    generated = GeneratedIds(fingerprint="m", token_ids=(1, 2, 3))
    append("hello ✓", call("1", "2"), result("2"), client_key="k1")
    append(say("assistant", "x", generated=generated))
    task = store.sessions.fork(scope, main, name="t", inherit=Inherit.ALL, at=2).id
    append("aside", branch=task)
    for pin_scope in PinScope:
        store.pins.set(scope, task, "a", pin_scope.value, pin_scope=pin_scope)
    store.pins.set(scope, task, "b", "first")
    store.pins.set(scope, task, "b", "second")
    store.pins.remove(scope, task, "b")
    store.replacements.add(scope, task, 1, 3)
    store.prompt_log.record(scope, prompt_of(main, truncated=True))
    prompt = prompt_of(task, truncated=True, head=3, summaries=(summary(task),))
    store.prompt_log.record(scope, prompt)
    return task


def account(store, scope, key="trip"):
    """Give everything that a session holds, without the numbers of its rows."""
    info = store.sessions.get(scope, key)
    branches = store.sessions.branches(scope, info.id)
    order = {branch.id: place for place, branch in enumerate(branches)}
    return {
        "session": replace(info, id=0, main=0, line=0, scope=Scope()),
        "branches": [
            replace(b, id=order[b.id], session_id=0, parent=order.get(b.parent)) for b in branches
        ],
        "messages": [
            [replace(m, id=0, branch_id=order[m.branch_id]) for m in store.messages.read(scope, b)]
            for b in order
        ],
        "replacements": [
            [(one.old, one.new, one.author, one.created_at) for one in visible]
            for visible in (store.replacements.visible(scope, b) for b in order)
        ],
        "pins": [store.pins.visible(scope, b) for b in order],
        "history": store.pins.history(scope, info.main, "a"),
        "assemblies": [
            replace(a, id=0, branch_id=order[a.branch_id])
            for a in store.prompt_log.assemblies(scope, info.id)
        ],
        "summaries": [
            [replace(s, branch_id=order[s.branch_id]) for s in store.prompt_log.summaries(scope, b)]
            for b in order
        ],
        "truncations": [
            replace(t, assembly_id=0, branch_id=order[t.branch_id])
            for t in store.prompt_log.truncations(scope, info.id)
        ],
    }


def test_an_imported_session_is_the_exported_one(store, scope, tmp_path):
    moved = store.transfer.export(tmp_path / "x.jsonl", scope=scope, key="trip")
    other = Scope(namespace="moved", user="u1")

    assert store.transfer.load(tmp_path / "x.jsonl", scope=other) == moved

    assert (moved.sessions, moved.messages) == (1, 8)
    assert account(store, other) == account(store, scope)
    check(store)


def test_an_import_goes_on_where_the_export_stopped(store, scope, tmp_path):
    """Open calls and client keys came along."""
    task = store.sessions.fork(
        scope, store.sessions.get(scope, "trip").main, name="open", inherit=Inherit.ALL, at=3
    )
    store.transfer.export(tmp_path / "x.jsonl", scope=scope)
    other = Scope(namespace="moved", user="u1")
    store.transfer.load(tmp_path / "x.jsonl", scope=other)
    info = store.sessions.get(other, "trip")
    moved = store.sessions.branches(other, info.id)

    again = store.messages.append(
        other, info.main, [say("user", "hello ✓"), call("1", "2"), result("2")], client_key="k1"
    )
    answered = store.messages.append(other, moved[-1].id, [result("1")])

    assert [item.position for item in again] == [1, 2, 3]
    assert [item.position for item in answered] == [4]
    assert moved[-1].name == task.name


def test_everything_moves_to_another_database_and_back_the_same(store, scope, tmp_path):
    stranger = Scope(namespace="n2", user="u42")
    store.sessions.get_or_create(stranger, "trip")
    store.transfer.export(tmp_path / "x.jsonl")
    with Store.open(f"sqlite:///{tmp_path / 'other.db'}") as other:
        other.transfer.load(tmp_path / "x.jsonl")

        assert account(other, scope) == account(store, scope)
        assert [info.key for info in other.sessions.list(stranger)] == ["trip"]
        other.transfer.export(tmp_path / "y.jsonl")
        check(other)

    def kinds(name):
        return [next(iter(json.loads(line))) for line in (tmp_path / name).read_text().splitlines()]

    assert kinds("y.jsonl") == kinds("x.jsonl")


def test_a_session_that_is_there_is_not_overwritten(store, scope, tmp_path):
    store.transfer.export(tmp_path / "x.jsonl", scope=scope)
    before = account(store, scope)

    with pytest.raises(ConflictError, match="'trip'"):
        store.transfer.load(tmp_path / "x.jsonl")

    assert account(store, scope) == before


def test_a_users_pin_is_not_overwritten(store, scope, tmp_path):
    store.transfer.export(tmp_path / "x.jsonl", scope=scope)
    other = Scope(namespace="moved", user="u1")
    main = store.sessions.get_or_create(other, "mine").main
    store.pins.set(other, main, "a", "my own", pin_scope=PinScope.USER)

    with pytest.raises(ConflictError, match="pin"):
        store.transfer.load(tmp_path / "x.jsonl", scope=other)

    assert [info.key for info in store.sessions.list(other)] == ["mine"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda lines: lines[:-1],
        lambda lines: lines[:-2] + lines[-1:],
        lambda lines: lines[: len(lines) // 2],
        lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [line.replace("hello", "hallo") for line in lines],
        lambda lines: [*lines[:-1], lines[-1].rstrip("\n")],
        lambda lines: [*lines[:-1], lines[-1][:-9]],
        lambda _: [],
        lambda _: ["hello\n"],
        lambda _: ["{}\n"],
        lambda _: ["[" * 100_000 + "\n"],
    ],
)
def test_a_damaged_file_is_refused_and_nothing_is_written(store, scope, tmp_path, damage):
    path = tmp_path / "x.jsonl"
    store.transfer.export(path, scope=scope)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(damage(lines)))
    other = Scope(namespace="moved", user="u1")

    with pytest.raises(DamagedFileError) as caught:
        store.transfer.load(path, scope=other)

    assert "\n" not in str(caught.value)
    assert store.sessions.list(other) == ()


@pytest.mark.parametrize(
    "forgery",
    [
        ("message", "role", "wizard"),
        ("message", "parts", "["),
        ("message", "position", "1"),
        ("message", "position", 2**63),
        ("message", "branch_id", 999),
        ("message", "created_at", "yesterday"),
        ("message", "created_at", "2026-01-01T00:00:00"),
        ("message", "parts", None),
        ("message", "name", "a\0b"),
        ("tool_call", "digest", "%%"),
        ("pin", "scope", "planet"),
        ("message", "extra", 1),
        ("branch", "state", "asleep"),
        ("branch", "inherit", "some"),
        ("message", "origin", "nowhere"),
        ("message", "tool_calls", "{"),
        ("truncation", "tier", "attic"),
        ("truncation", "rule", "whim"),
        ("session", "timezone", "Mars/Base"),
        ("session", "timezone", ""),
        ("assembly", "layout", "["),
        ("assembly", "layout", "7"),
        ("assembly", "layout", "[[1,2]]"),
        ("assembly", "layout", '[[1,2,"attic"]]'),
        ("assembly", "layout", '[["1",2,null]]'),
        ("assembly", "layout", '[[1,2,null,"compacted"]]'),
        ("assembly", "layout", '[[1,2,"summary","full",null,7]]'),
        ("assembly", "pins", '[["a"]]'),
        ("assembly", "pins", '[["a","1"]]'),
        ("assembly", "pins", "{"),
        ("assembly", "tokens_by_tier", "[]"),
        ("assembly", "tokens_by_tier", '{"attic":1}'),
        ("assembly", "tokens_by_tier", '{"recent":true}'),
        ("message", "parts", "[" * 100_000),
        ("assembly", "layout", "[" * 100_000),
    ],
)
def test_a_forged_row_with_a_right_checksum_is_refused(store, scope, tmp_path, forgery):
    path = tmp_path / "x.jsonl"
    store.transfer.export(path, scope=scope)
    forge(path, *forgery)
    other = Scope(namespace="moved", user="u1")

    with pytest.raises(DamagedFileError):
        store.transfer.load(path, scope=other)

    assert store.sessions.list(other) == ()


def forge(path, kind, column, value):
    """Change a column of the first row of a table and make the end agree with it."""
    records = [json.loads(line) for line in path.read_text().splitlines()][:-1]
    row = next(record[kind] for record in records if kind in record)
    row[column] = value
    body = "".join(json.dumps(record) + "\n" for record in records)
    end = {"lines": len(records), "sha256": hashlib.sha256(body.encode()).hexdigest()}
    path.write_text(body + json.dumps({"end": end}) + "\n")


def test_an_export_is_of_whom_it_is_asked_for(store, tmp_path):
    other = Scope(namespace="tests", user="u43")

    with pytest.raises(SessionNotFoundError):
        store.transfer.export(tmp_path / "x.jsonl", scope=other, key="trip")
    with pytest.raises(InvalidInputError, match="name its user"):
        store.transfer.export(tmp_path / "x.jsonl", key="trip")
    with pytest.raises(SessionNotFoundError, match=r"nothing of user 'u43' .* to export"):
        store.transfer.export(tmp_path / "x.jsonl", scope=other)
    assert not (tmp_path / "x.jsonl").exists()
    store.sessions.get_or_create(other, "trip")
    assert store.transfer.export(tmp_path / "x.jsonl", scope=other).sessions == 1
    assert "hello" not in (tmp_path / "x.jsonl").read_text()


def test_a_user_with_nothing_but_pins_can_be_exported(store, scope, tmp_path):
    store.deletion.session(scope, store.sessions.get(scope, "trip").id)

    assert store.transfer.export(tmp_path / "x.jsonl", scope=scope).sessions == 0

    assert '"pin"' in (tmp_path / "x.jsonl").read_text()
    with pytest.raises(SessionNotFoundError, match="'trip'"):
        store.transfer.export(tmp_path / "x.jsonl", scope=scope, key="trip")


def test_an_empty_database_can_be_exported(store, scope, tmp_path):
    store.deletion.user(scope)

    assert store.transfer.export(tmp_path / "x.jsonl").sessions == 0

    assert store.transfer.load(tmp_path / "x.jsonl").sessions == 0


def test_an_import_of_several_users_keeps_them_apart(store, tmp_path):
    store.sessions.get_or_create(Scope(namespace="tests", user="u43"), "trip")
    store.transfer.export(tmp_path / "x.jsonl")

    with pytest.raises(InvalidInputError, match="several users"):
        store.transfer.load(tmp_path / "x.jsonl", scope=Scope(user="one"))

    assert store.sessions.list(Scope(user="one")) == ()


def test_an_export_that_fails_leaves_no_file(store, tmp_path):
    with pytest.raises(InvalidInputError, match="cannot write"):
        store.transfer.export(tmp_path / "no" / "x.jsonl")
    with pytest.raises(InvalidInputError, match="cannot read"):
        store.transfer.load(tmp_path / "no.jsonl")

    assert [item.name for item in tmp_path.iterdir() if "jsonl" in item.name] == []
