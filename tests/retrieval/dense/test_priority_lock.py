"""Who may use the model now."""

import threading

import pytest

from agentmem.retrieval.dense.priority_lock import PriorityLock


def test_what_is_urgent_goes_before_what_waits():
    lock, order, begun = PriorityLock(), [], threading.Barrier(3)

    def work(name, *, is_urgent):
        begun.wait()
        with lock.acquire(is_urgent=is_urgent):
            order.append(name)

    threads = [
        threading.Thread(target=work, args=("passages",), kwargs={"is_urgent": False}),
        threading.Thread(target=work, args=("question",), kwargs={"is_urgent": True}),
    ]
    with lock.acquire():
        for thread in threads:
            thread.start()
        begun.wait()
        while lock._num_urgent == 0:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert order == ["question", "passages"]


def test_an_error_gives_the_turn_back():
    lock = PriorityLock()
    with pytest.raises(RuntimeError), lock.acquire():
        raise RuntimeError
    with lock.acquire(is_urgent=True):
        pass
    assert lock._num_urgent == 0


def test_no_two_at_once():
    lock, inside, most = PriorityLock(), [], []

    def work(number):
        for _ in range(50):
            with lock.acquire(is_urgent=number % 2 == 0):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 300
    assert max(most) == 1
