"""An export that has lost its hash chain, or a part of it, is refused; an older one is named."""

import base64
import gzip
import hashlib
import json
from pathlib import Path

import integrity_edits as bench
import pytest

from agentmem import Memory
from agentmem.errors import ConflictError, DamagedFileError, InvalidInputError

OLD = Path(__file__).parents[1] / "data" / "v0_1" / "export.jsonl.gz"
KEY = "a key that is kept elsewhere"
OF_CHAIN = {
    "user": ("chain",),
    "branch": ("chain", "log_chain"),
    "message": ("nonce", "link"),
    "pin_version": ("nonce",),
    "assembly": ("link",),
}
EVENTS = ("event", "user_event")


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    path = tmp_path_factory.mktemp("export") / "export.jsonl"
    with bench.open_memory("sqlite://") as memory:
        bench.fill(memory, "ann", turns=14)
        memory.export(path, user="ann", hmac_key=KEY)
    return path


def rewritten(file, tmp_path, change):
    """Write the export with each record changed, or left out for None, and a checksum made anew."""
    records = [next(iter(json.loads(line).items())) for line in file.read_text().splitlines()]
    changed = [(kind, change(kind, dict(content))) for kind, content in records[:-1]]
    lines = [json.dumps({kind: content}) + "\n" for kind, content in changed if content is not None]
    end = {"lines": len(lines), "sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}
    path = tmp_path / "rewritten.jsonl"
    path.write_text("".join(lines) + json.dumps({"end": end}) + "\n")
    return path


def without(columns, *, events=EVENTS, is_declared=True):
    def change(kind, content):
        if kind in events:
            return None
        if kind == "agentmem-export" and not is_declared:
            del content["chain"]
        for name in columns.get(kind, ()):
            content.pop(name)
        return content

    return change


def load(path, **more):
    with bench.open_memory("sqlite://") as memory:
        loaded = memory.load(path, **more)
        session = memory.find("trip", user=more.get("user") or "ann")
        assert session.check(integrity=True) == ()
        session.append("user", "And then?")
        session.assemble()
        session.pin("more", "x", scope="user")
        assert session.check(integrity=True, head=session.head()) == ()
        return loaded


def refused(path, **more):
    with bench.open_memory("sqlite://") as memory:
        with pytest.raises(DamagedFileError) as caught:
            memory.load(path, **more)
        assert memory.users() == ()
    return str(caught.value)


PARTS = [
    *(({kind: (name,)}, ()) for kind, names in OF_CHAIN.items() for name in names),
    ({}, ("event",)),
    ({}, ("user_event",)),
    (OF_CHAIN, EVENTS),
]


@pytest.mark.parametrize(("columns", "events"), PARTS)
def test_an_export_of_which_a_part_of_the_chain_is_gone_is_refused(file, tmp_path, columns, events):
    stripped = rewritten(file, tmp_path, without(columns, events=events))

    assert "chain" in refused(stripped)


@pytest.mark.parametrize("kept", ["branch", "message", "assembly", "event"])
def test_what_is_left_of_a_chain_counts_though_the_export_does_not_say_that_it_has_one(
    file, tmp_path, kept
):
    columns = {kind: names for kind, names in OF_CHAIN.items() if kind != kept}
    events = [kind for kind in EVENTS if kind != kept]

    refused(rewritten(file, tmp_path, without(columns, events=events, is_declared=False)))


@pytest.mark.parametrize("user", [None, "eve"])
def test_an_export_without_any_chain_is_an_older_one_for_which_nothing_vouches(
    file, tmp_path, user
):
    older = rewritten(file, tmp_path, without(OF_CHAIN, is_declared=False))

    unproven = load(older, user=user).unproven
    assert any("'trip'" in one for one in unproven)
    assert any("pins of user 'ann'" in one for one in unproven)
    assert load(file, user=user).unproven == ()


def test_an_export_of_before_the_log_was_chained_is_proved_but_for_that(tmp_path):
    later = {"user": ("chain",), "branch": ("log_chain",), "assembly": ("link",)}
    before = without(later, events=("user_event",), is_declared=False)
    with bench.open_memory("sqlite://") as memory:
        session = memory.session("trip", user="ann")
        session.append("user", "Hello.")
        session.assemble()
        memory.export(tmp_path / "short.jsonl", user="ann")
    path = rewritten(tmp_path / "short.jsonl", tmp_path, before)

    (unproven,) = load(path).unproven
    assert "messages and pins" in unproven
    path.write_text(path.read_text().replace("Hello.", "Goodbye."))
    refused(rewritten_end(path))


def rewritten_end(path):
    lines = path.read_text().splitlines(keepends=True)[:-1]
    end = {"lines": len(lines), "sha256": hashlib.sha256("".join(lines).encode()).hexdigest()}
    path.write_text("".join(lines) + json.dumps({"end": end}) + "\n")
    return path


def test_an_export_of_the_first_version_says_that_nothing_vouches_for_it(tmp_path):
    path = tmp_path / "old.jsonl"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    with Memory.open("sqlite://") as memory:
        assert memory.load(path).unproven


def test_with_a_key_a_stripped_a_rewritten_and_an_unkeyed_export_are_refused(file, tmp_path):
    assert load(file, hmac_key=KEY).unproven == ()
    assert load(file).sessions == 1
    assert "another key" in refused(file, hmac_key="guess")
    same = rewritten(file, tmp_path, lambda _, content: content)
    assert "without a key" in refused(same, hmac_key=KEY)
    older = rewritten(file, tmp_path, without(OF_CHAIN, is_declared=False))
    refused(older, hmac_key=KEY)
    end = json.loads(file.read_text().splitlines()[-1])
    lines = same.read_text().splitlines(keepends=True)
    forged = json.loads(lines[-1])
    forged["end"]["hmac"] = end["end"]["hmac"]
    same.write_text("".join(lines[:-1]) + json.dumps(forged) + "\n")
    assert "another key" in refused(same, hmac_key=KEY)
    for key in ("", 5):
        with Memory.open("sqlite://") as memory, pytest.raises(InvalidInputError):
            memory.load(file, hmac_key=key)


def test_a_chain_of_a_later_version_is_refused(file, tmp_path):
    def change(kind, content):
        return {**content, "chain": 3} if kind == "agentmem-export" else content

    assert "version 3" in refused(rewritten(file, tmp_path, change))


@pytest.mark.parametrize("what", ["text", "key", "made_from"])
def test_a_pin_of_a_user_that_was_changed_in_the_file_is_named(file, tmp_path, what):
    changes = {
        "text": ("pin_version", "Forged."),
        "key": ("pin", "house"),
        "made_from": ("pin_version", 7),
    }
    where, value = changes[what]
    pins = []

    def change(kind, content):
        if kind == "pin" and content["scope"] == "user":
            pins.append(content["id"])
        is_of_user = content.get("id" if kind == "pin" else "pin_id") in pins
        return {**content, what: value} if kind == where and is_of_user else content

    assert "pins of user 'ann'" in refused(rewritten(file, tmp_path, change))


def test_pins_of_a_user_are_chained_on_where_there_are_others_already(file, tmp_path):
    with bench.open_memory("sqlite://") as memory:
        other = memory.session("other", user="ann")
        other.append("user", "Hello.")
        other.pin("mine", "x", scope="user")
        head = other.head()
        memory.load(file)
        trip = memory.find("trip", user="ann")
        assert other.check(integrity=True, head=head) == ()
        assert trip.check(integrity=True) == ()
        memory.export(tmp_path / "both.jsonl")
    with bench.open_memory("sqlite://") as memory:
        memory.load(tmp_path / "both.jsonl")
        found = memory.find("other", user="ann")
        assert found.check(integrity=True, head=head) == ()
        with pytest.raises(ConflictError):
            memory.load(tmp_path / "both.jsonl")
        assert found.check(integrity=True, head=head) == ()


def test_the_chain_of_a_user_that_is_no_chain_is_refused(file, tmp_path):
    for value in (None, 5, "??", base64.b64encode(b"x" * 32).decode()):

        def change(kind, content, value=value):
            return {**content, "chain": value} if kind == "user" else content

        refused(rewritten(file, tmp_path, change))


@pytest.mark.parametrize("is_declared", [True, False])
def test_a_session_without_its_main_branch_is_refused(file, tmp_path, is_declared):
    pins = []

    def change(kind, content):
        if kind == "agentmem-export" and not is_declared:
            del content["chain"]
        if kind == "pin" and content["scope"] == "user":
            pins.append(content["id"])
        is_of_user = content.get("id" if kind == "pin" else "pin_id") in pins
        is_kept = is_of_user or kind in {"user", "session", "agentmem-export", "user_event"}
        return content if is_kept else None

    assert "0 main branches" in refused(rewritten(file, tmp_path, change))


def test_a_session_with_two_main_branches_is_refused(tmp_path):
    file = tmp_path / "export.jsonl"
    with bench.open_memory("sqlite://") as memory:
        memory.session("trip", user="ann").subtask("work")
        memory.export(file, user="ann")

    def change(kind, content):
        return {**content, "parent_id": None} if kind == "branch" else content

    assert "2 main branches" in refused(rewritten(file, tmp_path, change))
