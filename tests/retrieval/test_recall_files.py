"""The files beside a database: what is taken from them, and what is not."""

import logging

import numpy as np
import pytest

from agentmem.protocols import SearchScope
from agentmem.testing import HashingEmbedder
from tests.retrieval.embedders import FINGERPRINT
from tests.retrieval.filed import search
from tests.retrieval.retrieval_store import SCOPE, USER, ListRetrievalStore
from tests.retrieval.test_hybrid import ask


@pytest.mark.usefixtures("saved")
def test_what_was_saved_is_not_read_again(filed, open_filed):
    recall = open_filed()

    status = recall.status(USER)

    assert filed.num_read == 0
    assert (status.num_embedded, status.generation) == (21, 1)
    assert status.file_bytes > 21 * 1024


def test_it_finds_the_same_with_and_without_its_file(open_filed, saved):
    recall = open_filed()
    with_file = recall.search(ask("hotel number 7", visible={1: (1, 99)}))
    saved.unlink()

    without = open_filed().search(ask("hotel number 7", visible={1: (1, 99)}))

    assert with_file == without


def test_nothing_that_was_said_is_in_a_file(folder, saved):
    content = saved.read_bytes()

    for word in (b"xyzzy", b"word", b"hotel", b"u42", b"tests"):
        assert word not in content
    assert all(b"u42" not in bytes(path) for path in folder.iterdir())


def test_a_file_is_written_in_the_background_once_enough_has_changed(filed, open_filed, folder):
    recall = open_filed(save_after=20)
    assert recall.wait(10)
    search(recall)
    assert recall.wait(10)
    (path,) = folder.glob("*.vectors")

    before = path.read_bytes()
    filed.append(1, "one more")
    assert recall.wait(10)
    search(recall)
    assert recall.wait(10)
    assert path.read_bytes() == before  # one in twenty is not enough

    filed.append(1, *(f"museum {n}" for n in range(30)))
    assert recall.wait(10)
    search(recall)
    assert recall.wait(10)
    assert len(path.read_bytes()) > 2 * len(before)


@pytest.mark.parametrize(
    "harm",
    [
        lambda _: b"",
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: content[:3000] + b"\x07" + content[3001:],
        lambda _: b"something else entirely",
    ],
    ids=["empty", "half", "cut", "altered", "other"],
)
def test_a_damaged_file_is_made_anew(filed, open_filed, saved, caplog, harm):
    saved.write_bytes(harm(saved.read_bytes()))
    recall = open_filed()

    with caplog.at_level(logging.WARNING):
        assert 8 in search(recall)

    assert filed.num_read == 21
    assert "read from the database" in caplog.text
    assert str(saved) in recall.status(USER).last_error
    recall.close()
    filed.num_read = 0
    search(open_filed())
    assert filed.num_read == 0


def test_vectors_of_what_was_something_else_are_not_taken(filed, open_filed, saved, folder):
    """The database was replaced by another one, whose messages have the same ids."""
    assert saved.exists()
    other = ListRetrievalStore(folder)
    other.append(other.branch(), *(f"museum number {n}" for n in range(10)), "the hotel")
    filed.lines, filed.vectors = other.lines, other.vectors
    recall = open_filed()

    assert search(recall, "hotel")[0] == 11
    assert recall.wait(10)
    assert recall.status(USER).num_embedded == 11
    scores = recall._library.get(USER).vectors.index.vectors() @ HashingEmbedder().embed_query(
        "user: museum number 4"
    )
    assert int(np.argmax(scores)) == 4


def test_a_file_under_another_name_is_not_taken(open_filed, saved, caplog):
    other = HashingEmbedder(name="other")
    recall = open_filed(other)
    path = recall._library._files._path(USER)
    path.write_bytes(saved.read_bytes())

    with caplog.at_level(logging.WARNING):
        search(recall)

    assert "has another fingerprint" in caplog.text
    assert recall.wait(10)
    search(recall)
    vectors = recall._library.get(USER).vectors.index.vectors()
    assert (vectors @ other.embed_query("user: hotel number 1")).max() > 0.99


def test_a_folder_that_cannot_be_written_is_no_failure_of_a_search(
    filed, open_filed, folder, caplog
):
    folder.write_text("a file is in the way")
    recall = open_filed(save_after=1)

    with caplog.at_level(logging.WARNING):
        assert recall.wait(10)
        assert 8 in search(recall)
        for number in range(5):
            filed.append(1, f"more {number}")
            assert recall.wait(10)
            assert 8 in search(recall)

    assert str(folder) in recall.status(USER).last_error
    assert caplog.text.count("in memory only") == 1


@pytest.mark.usefixtures("saved")
def test_rebuilding_does_not_look_at_the_file(filed, open_filed):
    recall = open_filed()

    status = recall.rebuild(USER)

    assert filed.num_read == 21
    assert (status.num_embedded, status.num_pending) == (21, 0)
    assert status.file_bytes > 0


def test_indexes_that_were_not_used_for_longest_are_let_go(filed, open_filed):
    recall = open_filed(max_bytes=100_000)
    sessions = range(2, 8)
    for session in sessions:
        filed.append(filed.branch(session), *(f"train {n}" for n in range(30)))
    assert recall.wait(10)

    for session in sessions:
        search_scope = SearchScope(scope=SCOPE, session_id=session)
        assert recall.search(
            ask("train", search_scope=search_scope, session=session, visible={session: (1, 30)})
        )

    kept = [search_scope.session_id for search_scope in recall._library._indexes]
    assert kept in ([7], [6, 7])
    assert sum(index.num_bytes for index in recall._library._indexes.values()) <= 100_000
    assert search(recall)


def test_a_stored_vector_that_cannot_be_compared_is_told_and_passed_over(filed, open_filed, caplog):
    recall = open_filed()
    assert recall.wait(10)
    for message_id, wrong in (
        (3, b"abc"),
        (4, b"\0" * 1024),
        (5, b"\xff" * 1024),
        (6, b"\0\0\x80\x3f"),
    ):
        key = (FINGERPRINT, message_id)
        filed.vectors[key] = [
            type(filed.vectors[key][0])(message_id=message_id, first=0, last=0, vector=wrong)
        ]

    with caplog.at_level(logging.WARNING):
        assert 3 in search(recall, "hotel number 2")

    status = recall.status(USER)
    assert (status.num_embedded, status.num_pending) == (17, 0)
    assert "message 6" in status.last_error
    assert caplog.text.count("is invalid") == 4
