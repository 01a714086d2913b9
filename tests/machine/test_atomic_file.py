import os
import stat

import pytest

from agentmem.errors import InvalidInputError
from agentmem.machine.atomic_file import atomic_write


def write(path, content=b"new"):
    with atomic_write(path) as file:
        file.write(content)


def names(folder):
    return sorted(item.name for item in folder.iterdir())


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "folder"
    made.mkdir()
    return made


def test_only_the_owner_may_read_it(folder):
    write(folder / "x")

    assert (folder / "x").read_bytes() == b"new"
    assert stat.S_IMODE((folder / "x").stat().st_mode) == 0o600
    assert names(folder) == ["x"]


def test_a_pipe_is_not_replaced_nor_is_one_behind_a_link(folder):
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("pipe")

    for name in ("pipe", "link"):
        with pytest.raises(InvalidInputError, match=f"{name} is not a regular file") as caught:
            write(folder / name)
        assert "\n" not in str(caught.value)

    assert stat.S_ISFIFO((folder / "pipe").stat().st_mode)
    assert names(folder) == ["link", "pipe"]


@pytest.mark.parametrize("name", [".", "", ".."])
def test_a_folder_is_not_replaced(folder, monkeypatch, name):
    monkeypatch.chdir(folder)

    with pytest.raises(InvalidInputError, match="is a folder"):
        write(type(folder)(name))

    assert names(folder) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_a_link_stays_and_what_it_leads_to_is_replaced(folder, tmp_path, is_there):
    real = tmp_path / "real"
    if is_there:
        real.write_bytes(b"old")
    (folder / "link").symlink_to(real)

    write(folder / "link")

    assert (folder / "link").is_symlink()
    assert real.read_bytes() == b"new"
    assert names(folder) == ["link"]


def test_a_link_to_itself_is_an_error_of_the_system(folder):
    (folder / "loop").symlink_to("loop")

    with pytest.raises(OSError, match="loop"):
        write(folder / "loop")


def test_a_name_with_a_null_is_refused(folder):
    with pytest.raises(InvalidInputError, match="not a file name"):
        write(folder / "a\0b")


def test_a_file_of_the_users_beside_it_stays(folder):
    (folder / "x.part").write_bytes(b"mine")

    write(folder / "x")

    assert (folder / "x.part").read_bytes() == b"mine"


def test_two_at_once_do_not_share_anything(folder):
    with atomic_write(folder / "x") as first:
        write(folder / "x", b"second")
        first.write(b"first")

    assert (folder / "x").read_bytes() == b"first"
    assert names(folder) == ["x"]


def test_a_failure_leaves_what_was_there(folder):
    (folder / "x").write_bytes(b"old")

    def fail():
        with atomic_write(folder / "x") as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert (folder / "x").read_bytes() == b"old"
    assert names(folder) == ["x"]


def test_the_longest_name_that_the_system_takes_is_one(folder):
    write(folder / ("é" * 127))

    assert names(folder) == ["é" * 127]
