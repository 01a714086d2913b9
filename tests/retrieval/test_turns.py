"""Who may use the model now."""

import threading

import pytest

from agentmem.retrieval.turns import Turns


def test_what_is_urgent_goes_before_what_waits():
    turns, order, begun = Turns(), [], threading.Barrier(3)

    def work(name, *, is_urgent):
        begun.wait()
        with turns.take(is_urgent=is_urgent):
            order.append(name)

    threads = [
        threading.Thread(target=work, args=("passages",), kwargs={"is_urgent": False}),
        threading.Thread(target=work, args=("question",), kwargs={"is_urgent": True}),
    ]
    with turns.take():
        for thread in threads:
            thread.start()
        begun.wait()
        while turns._num_urgent == 0:
            threading.Event().wait(0.001)
    for thread in threads:
        thread.join()
    assert order == ["question", "passages"]


def test_an_error_gives_the_turn_back():
    turns = Turns()
    with pytest.raises(RuntimeError), turns.take():
        raise RuntimeError
    with turns.take(is_urgent=True):
        pass
    assert turns._num_urgent == 0


def test_no_two_at_once():
    turns, inside, most = Turns(), [], []

    def work(number):
        for _ in range(50):
            with turns.take(is_urgent=number % 2 == 0):
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
