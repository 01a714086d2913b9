"""`agentmem head` and `agentmem check` with heads and keys from elsewhere, as in a shell."""

import contextlib
import json
import sqlite3

import pytest

from agentmem import Memory
from agentmem.cli import main
from agentmem.testing import WordCounter


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "agent.db"
    with Memory.open(f"sqlite:///{path}", counter=WordCounter()) as memory:
        session = memory.session("trip", user="ann")
        for role, text in (("user", "A hotel?"), ("assistant", "Hotel Lisboa, 92 EUR.")):
            session.append(role, text)
        session.assemble()
        session.pin("home", "Berlin.", scope="user")
    return path


@pytest.fixture
def run(path, monkeypatch, capsys):
    monkeypatch.delenv("AGENTMEM_KEY", raising=False)

    def call(*words):
        shell = ["agentmem", *map(str, words), "--database", f"sqlite:///{path}"]
        if words[0] not in {"import", "export"}:
            shell += ["--user", "ann"]
        monkeypatch.setattr("sys.argv", shell)
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out.strip(), said.err.strip()

    return call


def edit(path, statement):
    with contextlib.closing(sqlite3.connect(path)) as raw:
        raw.execute(statement)
        raw.commit()


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "key"
    path.write_text("a secret\n")
    return path


def test_a_head_is_one_line_that_a_check_takes(run):
    code, head, _ = run("head", "trip")

    assert (code, head.count("\n")) == (0, 0)
    assert head.startswith("sha256:2.")
    assert json.loads(run("head", "trip", "--json")[1]) == {"session": "trip", "head": head}
    assert run("check", "trip", "--integrity")[0] == 0
    code, said, _ = run("check", "trip", "--head", head)
    assert (code, "balances" in said) == (0, True)
    assert run("check", "trip", "--head", f" {head}\n")[0] == 0


def test_a_key_comes_from_an_option_a_variable_or_a_file(run, key_file, monkeypatch):
    _, head, _ = run("head", "trip", "--key", "a secret")

    assert head.startswith("hmac-sha256:")
    assert run("head", "trip", "--key-file", key_file)[1] == head
    assert run("check", "trip", "--head", head, "--key-file", key_file)[0] == 0
    monkeypatch.setenv("AGENTMEM_KEY", "a secret")
    assert run("head", "trip")[1] == head
    assert run("check", "trip", "--head", head)[0] == 0
    monkeypatch.setenv("AGENTMEM_KEY", "another")
    assert run("head", "trip", "--key-file", key_file)[1] == head
    code, said, _ = run("check", "trip", "--head", head)
    assert (code, "never passed" in said) == (1, True)


def test_a_plain_head_is_checked_though_a_key_is_set_for_other_calls(run, monkeypatch):
    _, head, _ = run("head", "trip")
    monkeypatch.setenv("AGENTMEM_KEY", "a secret")

    assert run("check", "trip", "--head", head)[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "trip", "--head", "nonsense"], "not a head"),
        (["check", "trip", "--head", ""], "not a head"),
        (["check", "trip", "--head", f"hmac-sha256:1.0.0+0:{'0' * 64}:{'0' * 64}"], "with a key"),
        (["check", "none", "--integrity"], "none"),
        (["head", "none"], "none"),
        (["head", "trip", "--key", ""], "at least one character"),
        (["head", "trip", "--key-file", "/no/such/file"], "/no/such/file"),
    ],
)
def test_what_is_no_head_no_key_and_no_session_is_one_line_and_exit_code_2(run, words, said):
    code, out, error = run(*words)

    assert (code, out) == (2, "")
    assert said in error
    assert "Traceback" not in error


def test_a_key_file_that_is_empty_or_no_text_is_refused(run, tmp_path):
    for content in (b"", b"\n", b"\xff\xfe"):
        (tmp_path / "bad").write_bytes(content)

        assert run("head", "trip", "--key-file", tmp_path / "bad")[0] == 2


@pytest.mark.parametrize(
    ("statement", "where"),
    [
        ("UPDATE message SET parts = replace(parts, '92', '920')", "message 2"),
        ("UPDATE assembly SET prompt_hash = '0'", "prompt 1"),
        ("UPDATE pin_version SET text = 'Rome.'", "pin 'home'"),
        ("DELETE FROM assembly", "newest prompt"),
    ],
)
def test_what_was_edited_is_named_in_words_and_as_json_with_exit_code_1(
    run, path, statement, where
):
    head = run("head", "trip")[1]
    edit(path, statement)

    for more in (["--integrity"], ["--head", head]):
        code, said, _ = run("check", "trip", *more)
        assert code == 1
        assert where in " ".join(said.split())
    code, said, _ = run("check", "trip", "--integrity", "--json")
    (audit,) = json.loads(said)
    assert code == 1
    problem = audit["discrepancies"][0]
    assert problem["position"] == (2 if where == "message 2" else None)
    assert problem["assembly_id"] == (1 if where == "prompt 1" else None)


def test_a_head_of_another_session_and_one_from_before_a_rollback_are_named(run, path):
    with Memory.open(f"sqlite:///{path}") as memory:
        session = memory.find("trip", user="ann")
        other = memory.session("other", user="ann")
        other.append("user", "Hello.")
        heads = [other.head()]
        session.append("user", "Book it.")
        heads.append(session.head())
    with contextlib.closing(sqlite3.connect(path)) as raw:
        (link,) = raw.execute(
            "SELECT link FROM message WHERE branch_id = 1 AND position = 2"
        ).fetchone()
        raw.execute("DELETE FROM message WHERE branch_id = 1 AND position = 3")
        raw.execute("UPDATE branch SET head = 2, chain = ? WHERE id = 1", (link,))
        raw.commit()

    assert run("check", "trip", "--integrity")[0] == 0
    for head in heads:
        code, said, _ = run("check", "trip", "--head", head, "--json")
        (audit,) = json.loads(said)
        assert code == 1
        assert "never passed the head" in audit["discrepancies"][0]["problem"]


def test_an_export_with_a_key_is_imported_with_that_key_alone(run, tmp_path, key_file):
    keyed, plain = tmp_path / "keyed.jsonl", tmp_path / "plain.jsonl"
    assert run("export", keyed, "--key-file", key_file)[0] == 0
    assert run("export", plain)[0] == 0
    assert run("delete", "trip", "--yes")[0] == 0

    for file, key in ((plain, "a secret"), (keyed, "another")):
        code, _, error = run("import", file, "--key", key)
        assert (code, "nothing was imported" in " ".join(error.split())) == (2, True)
    code, said, _ = run("import", keyed, "--key", "a secret")
    assert (code, "not verified" in said) == (0, False)
    assert run("check", "trip", "--integrity")[0] == 0
