"""Who may start, who waits and who is refused, on a real pool."""

import dataclasses

import pytest
import torch

from agentmem.config import InferenceConfig
from agentmem.errors import AdmissionError, ConfigError, DeadlineError
from agentmem.inference.kv_cache.pool_size import free_bytes
from agentmem.inference.kv_cache.sequence import State
from agentmem.types import FinishReason
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_model, tiny_module

MODULE = tiny_module()


def test_a_request_longer_than_the_pool_is_refused_at_once_with_the_numbers():
    model = model_with_blocks(10)

    with pytest.raises(AdmissionError, match=r"needs 41 tokens but the KV pool") as caught:
        model.stream(ask(random_ids(30), 11))

    assert (caught.value.needed, caught.value.limit) == (41, 40)
    assert model.generate(ask(random_ids(30), 10)).usage.prompt_tokens == 30


def test_a_request_longer_than_the_context_window_is_refused_at_once_with_the_numbers():
    model = tiny_model(module=MODULE)

    with pytest.raises(AdmissionError, match="the model's context window holds 512") as caught:
        model.stream(ask(random_ids(500), 13))

    assert (caught.value.needed, caught.value.limit) == (513, 512)


def test_without_a_limit_the_room_that_is_left_is_the_limit():
    model = model_with_blocks(10)

    usage = model.generate(ask(random_ids(30), None)).usage

    assert usage.completion_tokens <= 10


def test_a_request_waits_for_blocks_that_another_gives_back():
    """Whoever waits takes the steps of the other too, so nobody has to read that one on."""
    model = model_with_blocks(10)
    first = model.stream(ask(random_ids(20), 12))
    next(first)

    second = model.generate(ask(random_ids(20, seed=1), 12))

    assert second.usage.completion_tokens == 12
    assert model.kv_usage().in_use == 0
    assert list(first)[-1].result.usage.completion_tokens == 12
    model.check()


def test_a_request_that_waited_too_long_says_so_and_harms_nobody():
    model = model_with_blocks(10)
    first = model.stream(ask(random_ids(20), 12))
    next(first)
    late = dataclasses.replace(ask(random_ids(20, seed=1), 12), timeout_s=1e-9)

    with pytest.raises(DeadlineError, match=r"no token after its 1e-09 s") as caught:
        model.generate(late)

    assert isinstance(caught.value, TimeoutError)
    assert list(first)[-1].result.usage.completion_tokens == 12
    assert model.kv_usage().in_use == 0
    model.check()


def test_a_deadline_in_the_middle_of_an_answer_ends_it_with_what_was_said(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("agentmem.inference.engine.engine.time.monotonic", lambda: now[0])
    model = model_with_blocks(40)
    stream = model.stream(dataclasses.replace(ask(random_ids(21), 12), timeout_s=5.0))
    first = next(stream)

    now[0] = 6.0
    chunks = list(stream)

    assert chunks[-1].result.finish_reason is FinishReason.ABORT
    assert chunks[-1].result.text == first.text + "".join(chunk.text for chunk in chunks)
    assert model.kv_usage().in_use == 0
    model.check()


def test_a_running_request_always_gets_the_blocks_it_was_promised():
    """The second takes all that is free; the first then still grows to its full length."""
    model = model_with_blocks(16)
    first = model.stream(ask(random_ids(20), 12))
    next(first)
    second = model.stream(ask(random_ids(20, seed=1), 12))
    next(second)
    model.check()

    assert len(list(first)) > 0
    assert len(list(second)) > 0
    model.check()


def test_blocks_that_were_promised_are_not_given_to_another():
    """Five are in use and ten are free, but three of these are for the first to grow into."""
    model = model_with_blocks(15)
    first = model.stream(ask(random_ids(20), 12))
    next(first)

    second = model._output(ask(random_ids(20, seed=1), 12))
    model._engine.add(second.sequence)
    model._engine.step()
    assert second.sequence.state is State.WAITING

    list(first)
    model._engine.step()
    assert second.sequence.state is State.RUNNING
    model._engine.cancel(second.sequence)
    assert model.kv_usage().in_use == 0


def test_a_share_of_the_device_is_a_pool_of_that_size(monkeypatch):
    monkeypatch.setattr("agentmem.inference.kv_cache.pool_size.free_bytes", lambda _: 1 << 20)

    whole, half = (tiny_model(module=MODULE, kv_bytes=share).kv_usage() for share in (1.0, 0.5))

    assert whole.max_kv_bytes <= 1 << 20
    assert half.max_kv_bytes <= 1 << 19
    assert whole.total // 2 - half.total in (0, 1)


def test_the_machine_has_memory_left():
    assert 1 << 20 < free_bytes(torch.device("cpu")) < 1 << 50


@pytest.mark.parametrize("kv_bytes", [0, -1, 0.0, 1.5, float("nan"), "1GB", True])
def test_a_pool_of_no_size_is_refused(kv_bytes):
    with pytest.raises(ConfigError, match="kv_bytes must be"):
        InferenceConfig(kv_bytes=kv_bytes)


def test_a_pool_larger_than_the_machine_is_refused():
    with pytest.raises(ConfigError, match=r"kv_bytes \d+ is more than the \d+ bytes that cpu has"):
        tiny_model(module=MODULE, kv_bytes=1 << 50)
