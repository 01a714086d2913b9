"""A thread that steps for all is killed at any line: the others get their answers all the same."""

import sys
import threading
from functools import cache
from pathlib import Path

import pytest

import agentmem.inference
from agentmem.errors import InferenceError
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_model, tiny_module

MODULE = tiny_module()
FOLDER = str(Path(agentmem.inference.__file__).parent)
OURS = {
    f"{FOLDER}/{name}.py"
    for name in (
        *("engine/engine", "engine/step_lock", "engine/signal", "engine/request_handle"),
        *("engine/request_state", "engine/engine_core", "engine/scheduler"),
        *("engine/sequence_blocks", "kv_cache/prefix_cache", "kv_cache/sequence"),
        *("kv_cache/block_pool", "runner/model_runner", "runner/batch_buffers"),
    )
}
assert all(Path(name).is_file() for name in OURS)
PROMPTS = [random_ids(13, seed=n) for n in range(3)]


class KilledError(BaseException):
    """What ends the thread."""


class Killer:
    """A trace function that raises at the line of that number, once."""

    def __init__(self, number):
        self.left = number
        self.where = None

    def __call__(self, frame, event, _arg):
        if frame.f_code.co_filename not in OURS:
            return None
        if event == "line":
            self.left -= 1
            if self.left == 0:
                self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KilledError
        return self


@cache
def text_alone(index):
    return tiny_model(module=MODULE).generate(ask(PROMPTS[index], 5)).text


def text_of(pending):
    """The answer; None if the request was interrupted while it took a token."""
    try:
        return pending.result().text
    except InferenceError as error:
        assert "interrupted while it sampled a token" in str(error)  # noqa: PT017 - both ends are right
        return None


def kill_at(number):
    """Kill the first reader at that line, then let the others read; return where it was."""
    model = model_with_blocks(24, module=MODULE)
    pending = [model.submit(ask(prompt, 5)) for prompt in PROMPTS]
    killer = Killer(number)

    def read():
        sys.settrace(killer)
        try:
            pending[0].result()
        except KilledError:
            pass
        finally:
            sys.settrace(None)

    thread = threading.Thread(target=read)
    thread.start()
    thread.join(60)
    got = {}

    def wait(index):
        got[index] = text_of(pending[index])

    others = [threading.Thread(target=wait, args=(index,), daemon=True) for index in (1, 2)]
    for other in others:
        other.start()
    for other in others:
        other.join(20)
    assert not any(other.is_alive() for other in others), f"they hang: {killer.where}"
    got[0] = text_of(pending[0])
    right = [got[index] == text_alone(index) for index in range(3)]
    # At most the one that was choosing a token is given up.
    assert right.count(False) <= 1, killer.where
    assert all(right) or got[right.index(False)] is None, killer.where
    assert model.kv_usage().in_use == 0, killer.where
    model.check()
    return killer.where


@pytest.mark.slow
@pytest.mark.parametrize("offset", range(3))
def test_a_reader_killed_at_any_line_harms_no_other(offset):
    """Each run takes some thousand lines; a prime stride meets all parts of a step."""
    number, where = 1 + offset * 67, set()
    while (place := kill_at(number)) is not None:
        where.add(place)
        number += 199

    assert len(where) > 8
