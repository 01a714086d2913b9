import pytest

from agentmem.machine.file_lock import lock, try_lock, unlock


def test_one_open_file_has_the_lock_until_it_is_unlocked(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as first, path.open("ab") as second:
        assert try_lock(first)
        assert not try_lock(second)

        unlock(first)

        assert try_lock(second)


def test_closing_a_file_unlocks_it(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as first:
        lock(first, timeout_s=0)

    with path.open("ab") as second:
        assert try_lock(second)


def test_waiting_for_a_lock_ends_with_the_time_and_the_name_of_the_file(tmp_path):
    path = tmp_path / "lock"
    with path.open("ab") as first, path.open("ab") as second:
        lock(first, timeout_s=0)

        with pytest.raises(TimeoutError, match=r"another process has held .*lock for 0 s"):
            lock(second, timeout_s=0.02)
