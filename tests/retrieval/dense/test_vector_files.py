import os
import threading
from pathlib import Path

import numpy as np
import pytest

from agentmem.errors import DamagedIndexError, IndexFileError
from agentmem.protocols import SearchScope
from agentmem.retrieval.dense import vector_files
from agentmem.retrieval.dense.vector_file_format import SavedVectors
from agentmem.retrieval.dense.vector_files import VectorFiles
from agentmem.types import Scope, SessionId
from tests.store.processes import finish, start

USER = SearchScope(scope=Scope(namespace="tests", user="u42"))
SESSION = SearchScope(scope=USER.scope, session_id=SessionId(7))


def saved(count=3, *, first=1, seed=0):
    vectors = np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)
    ids = np.arange(first, first + count, dtype=np.int64)
    return SavedVectors(message_ids=ids, content_hashes=ids.astype(np.uint64) * 11, vectors=vectors)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "index"


@pytest.fixture
def files(folder):
    return VectorFiles(folder, "embedder 1")


def put(files, search_scope, what):
    with files.turn():
        return files.save(search_scope, what)


def the_file(folder):
    (found,) = folder.glob("*.vectors")
    return found


@pytest.mark.parametrize("search_scope", [USER, SESSION])
@pytest.mark.parametrize("count", [0, 1, 500])
def test_what_was_saved_is_loaded(files, search_scope, count):
    put(files, search_scope, saved(count))

    generation, loaded = files.load(search_scope)

    assert generation == 1
    assert (loaded.message_ids == saved(count).message_ids).all()
    assert (loaded.content_hashes == saved(count).content_hashes).all()
    assert (loaded.vectors == saved(count).vectors).all()


def test_there_is_nothing_to_load_before_a_save(files, folder):
    assert files.load(USER) is None
    assert not folder.exists()


def test_each_save_counts_up_and_replaces_the_one_before(files, folder):
    assert [put(files, USER, saved(count)) for count in (5, 2, 9)] == [1, 2, 3]

    generation, loaded = files.load(USER)
    assert (generation, len(loaded.vectors)) == (3, 9)
    assert sorted(path.suffix for path in folder.iterdir()) == ["", ".vectors"]  # with the lock


def test_every_byte_that_is_altered_is_noticed(files, folder):
    put(files, USER, saved(3))
    path = the_file(folder)
    whole = path.read_bytes()

    for place in range(len(whole)):
        for change in (1, 0x80, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ change]) + whole[place + 1 :])
            with pytest.raises(DamagedIndexError):
                files.load(USER)


def test_every_cut_and_every_addition_is_noticed(files, folder):
    put(files, USER, saved(3))
    path = the_file(folder)
    whole = path.read_bytes()

    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(DamagedIndexError):
            files.load(USER)
    for more in (b"\0", b"\n", whole[-32:], whole):
        path.write_bytes(whole + more)
        with pytest.raises(DamagedIndexError):
            files.load(USER)


def test_a_file_under_the_name_of_another_domain_or_embedder_is_refused(files, folder):
    put(files, USER, saved(3))
    other = VectorFiles(folder, "embedder 2")

    for reader, search_scope in (
        (files, SESSION),
        (files, SearchScope(scope=Scope(namespace="tests", user="u43"))),
        (other, USER),
    ):
        the_content = the_file(folder).read_bytes()
        moved = reader._path(search_scope)
        moved.write_bytes(the_content)
        with pytest.raises(DamagedIndexError, match="has another"):
            reader.load(search_scope)
        moved.unlink()


def test_names_of_two_users_never_lead_to_one_file(files):
    scopes = [
        Scope(namespace="a", user="b"),
        Scope(namespace="b", user="a"),
        Scope(namespace='a", "b', user="c"),
        Scope(namespace="a", user='b", "c'),
    ]

    assert len({files._path(SearchScope(scope=scope)) for scope in scopes}) == 4


def test_a_file_tells_no_names_and_only_its_owner_reads_it(files, folder):
    put(files, SearchScope(scope=Scope(namespace="company", user="alice")), saved(3))

    path = the_file(folder)
    for name in (b"company", b"alice"):
        assert name not in path.read_bytes()
        assert name not in os.fsencode(path.name)
    assert path.stat().st_mode & 0o077 == 0
    assert folder.stat().st_mode & 0o077 == 0


def test_what_a_killed_process_left_unfinished_goes_with_the_next_save(files, folder):
    put(files, USER, saved(3))
    for number in range(3):
        (folder / f"x{number}.part").write_bytes(b"half a file")

    put(files, USER, saved(4))

    assert [path for path in folder.iterdir() if path.suffix == ".part"] == []


def test_a_save_that_fails_leaves_what_was_there(files, folder, monkeypatch):
    put(files, USER, saved(3))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(IndexFileError, match="No space left"):
        put(files, USER, saved(9))

    assert len(files.load(USER)[1].vectors) == 3
    assert list(folder.glob("*.part")) == []


def test_a_folder_that_cannot_be_written_is_said_so(tmp_path):
    (tmp_path / "in-the-way").write_text("a file")
    files = VectorFiles(tmp_path / "in-the-way", "embedder 1")

    with pytest.raises(IndexFileError), files.turn():
        pass
    with pytest.raises(IndexFileError):
        files.load(USER)


def test_a_turn_that_does_not_come_is_said_so(files, monkeypatch):
    monkeypatch.setattr(vector_files, "_PATIENCE_S", 0.05)

    with files.turn(), pytest.raises(IndexFileError, match="another process"), files.turn():
        pass
    with files.turn():
        pass


def test_removing_messages_takes_every_file_of_their_user_that_has_one(files, folder):
    other = VectorFiles(folder, "embedder 2")
    stranger = SearchScope(scope=Scope(namespace="tests", user="u43"))
    put(files, USER, saved(5))
    put(files, SESSION, saved(5, first=100))
    put(other, USER, saved(5))
    put(other, SESSION, saved(5, first=100))
    put(files, stranger, saved(5))
    other._path(SESSION).write_bytes(b"cannot be read, so it could hold anything")

    with files.turn():
        files.remove_with(USER.scope, {3})

    left = [files.load(SESSION), files.load(stranger)]
    assert all(left)
    assert files.load(USER) is None
    assert other.load(USER) is None
    assert other.load(SESSION) is None


def test_threads_that_save_at_once_leave_one_whole_file(files, folder):
    threads = [
        threading.Thread(target=lambda n=n: put(files, USER, saved(100 + n, seed=n)))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    generation, loaded = files.load(USER)
    number = len(loaded.vectors) - 100
    assert generation == 8
    assert (loaded.vectors == saved(100 + number, seed=number).vectors).all()
    assert len(list(folder.iterdir())) == 2


SAVE_FOR_EVER = """
import sys
from pathlib import Path
from agentmem.retrieval.dense.vector_files import VectorFiles
from tests.retrieval.dense.test_vector_files import USER, put, saved
files = VectorFiles(Path(sys.argv[1]), "embedder 1")
for number in range(int(sys.argv[2])):
    put(files, USER, saved(50 + number, seed=number))
    generation, loaded = files.load(USER)
    count = len(loaded.vectors)
    assert (loaded.vectors == saved(count, seed=count - 50).vectors).all()
print("done")
"""


@pytest.mark.slow
def test_processes_that_save_at_once_never_meet_half_a_file(files, folder):
    processes = [start(SAVE_FOR_EVER, folder, 40) for _ in range(3)]

    assert [finish(process).strip() for process in processes] == ["done"] * 3
    assert files.load(USER)[0] == 120
    assert Path(the_file(folder)).stat().st_size > 0
