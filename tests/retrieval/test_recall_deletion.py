"""What was deleted stays in no file."""

import time
from dataclasses import replace

import pytest

from agentmem.errors import IndexFileError
from agentmem.retrieval import HybridRetriever
from agentmem.types import Scope
from tests.builders import say
from tests.retrieval.filed import search, vector_of
from tests.retrieval.retrieval_store import SCOPE, USER


def test_what_is_forgotten_is_in_no_file_when_it_returns(filed, open_filed, saved, folder):
    recall = open_filed()
    search(recall)
    secret = vector_of(filed, 21)
    assert secret in saved.read_bytes()
    filed.empty(21)

    recall.forget(SCOPE, [21])

    assert all(secret not in path.read_bytes() for path in folder.iterdir())
    recall.close()
    assert all(secret not in path.read_bytes() for path in folder.iterdir())
    again = open_filed()
    assert again.status(USER).num_embedded == 20
    assert again.status(USER).generation == 1


@pytest.mark.usefixtures("saved")
def test_forgetting_reaches_files_of_indexes_that_are_not_loaded(filed, folder):
    secret = vector_of(filed, 21)
    filed.empty(21)
    by_words = HybridRetriever().open_index(filed)

    by_words.forget(SCOPE, [21])

    assert all(secret not in path.read_bytes() for path in folder.iterdir())
    by_words.close()


@pytest.mark.usefixtures("saved")
def test_forgetting_leaves_what_has_none_of_it(filed, open_filed, folder):
    recall = open_filed()
    search(recall)
    before = sorted(folder.glob("*.vectors"))

    recall.forget(SCOPE, [999])
    recall.forget(SCOPE, [])
    recall.forget(Scope(namespace="tests", user="u43"), [21])

    assert sorted(folder.glob("*.vectors")) == before
    assert filed.num_read == 0


def test_a_save_does_not_bring_back_what_another_process_deleted(filed, open_filed, folder):
    recall = open_filed()
    assert recall.wait(10)
    search(recall)
    secret = vector_of(filed, 21)
    filed.empty(21)  # and this recall is not told

    recall.close()

    (path,) = folder.glob("*.vectors")
    assert secret not in path.read_bytes()
    assert vector_of(filed, 8) in path.read_bytes()


def test_a_file_loses_what_was_deleted_while_nobody_looked(filed, open_filed, saved):
    secret = vector_of(filed, 21)
    filed.empty(21)
    recall = open_filed()
    search(recall)

    recall.close()

    assert secret not in saved.read_bytes()


def test_what_cannot_be_removed_is_told_to_whoever_deletes(open_filed, saved, monkeypatch):
    recall = open_filed()
    search(recall)

    def refuse(self, **_):
        raise PermissionError(13, "read-only", str(self))

    monkeypatch.setattr(type(saved), "unlink", refuse)
    with pytest.raises(IndexFileError, match="read-only"):
        recall.forget(SCOPE, [21])


@pytest.fixture
def large(filed, open_filed, folder):
    """A file of so much that one message more or less is no reason to write it anew."""
    filed.append(1, *(f"museum {n}" for n in range(200)))
    recall = open_filed()
    assert recall.wait(10)
    search(recall)
    recall.close()
    (path,) = folder.glob("*.vectors")
    assert vector_of(filed, 21) in path.read_bytes()
    return path


def test_a_large_file_loses_what_was_deleted_while_nobody_looked(filed, open_filed, large):
    secret = vector_of(filed, 21)
    filed.empty(21)

    search(open_filed())

    deadline = time.monotonic() + 10
    while secret in large.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert secret not in large.read_bytes()
    assert vector_of(filed, 100) in large.read_bytes()


@pytest.mark.parametrize("how", ["message", "branch"])
def test_a_large_file_loses_what_another_process_deleted_meanwhile(
    filed, open_filed, folder, large, how
):
    other = filed.branch(2)
    (one,) = filed.append(other, "a secret train")
    recall = open_filed()
    assert recall.rebuild(USER).num_pending == 0
    secret = vector_of(filed, one)
    assert secret in large.read_bytes()

    filed.empty(one) if how == "message" else filed.drop(other)
    assert one not in search(recall, "secret train")
    recall.close()

    assert all(secret not in path.read_bytes() for path in folder.iterdir())


def test_a_save_that_failed_does_not_forget_what_is_to_go(filed, open_filed, large, monkeypatch):
    secret = vector_of(filed, 21)
    filed.empty(21)
    recall = open_filed()
    full = OSError(28, "No space left on device")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", lambda _: (_ for _ in ()).throw(full))
        search(recall)
        assert recall.wait(10)
        assert "No space left" in recall.status(USER).last_error
    assert secret in large.read_bytes()

    recall.close()

    assert secret not in large.read_bytes()


def test_what_is_left_of_a_large_file_is_saved_again(filed, open_filed, large):
    recall = open_filed()
    search(recall)
    filed.empty(21)

    recall.forget(SCOPE, [21])
    assert not large.exists()
    recall.close()

    assert vector_of(filed, 100) in large.read_bytes()


def test_what_a_killed_process_left_half_written_goes(open_filed, saved, folder):
    (folder / "half.part").write_bytes(saved.read_bytes()[:1000])
    recall = open_filed()

    search(recall)
    assert recall.wait(10)

    assert not (folder / "half.part").exists()


def test_a_save_leaves_out_what_is_something_else_now(filed, open_filed, folder):
    recall = open_filed()
    assert recall.wait(10)
    search(recall)
    old = vector_of(filed, 8)
    filed.lines[1].messages[7] = replace(filed.lines[1].messages[7], message=say("user", "new"))

    recall.close()

    (path,) = folder.glob("*.vectors")
    assert old not in path.read_bytes()
    assert vector_of(filed, 9) in path.read_bytes()
