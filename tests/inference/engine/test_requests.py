"""Many requests of one model: handed in, waited for, cancelled, forked, mapped."""

import asyncio
import dataclasses
import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from agentmem.errors import ConfigError, InferenceError, InvalidInputError, QueueFullError
from agentmem.types import FinishReason
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_model, tiny_module

MODULE = tiny_module()
PROMPT = random_ids(21)


def texts(model, requests):
    return [model.generate(request).text for request in requests]


def test_a_pending_request_moves_when_another_is_waited_for():
    model = tiny_model(module=MODULE)
    requests = [ask(random_ids(20 + n, seed=n), 10) for n in range(4)]
    expected = texts(tiny_model(module=MODULE), requests)

    pending = [model.submit(request) for request in requests]
    last = pending[-1].result()
    passes = model.stats().passes
    others = [one.result().text for one in pending[:-1]]

    assert [*others, last.text] == expected
    assert model.stats().passes == passes
    model.check()


def test_cancelling_gives_what_was_said_and_gives_the_blocks_back():
    model = model_with_blocks(40, module=MODULE)
    whole = model.generate(ask(PROMPT, 12)).text
    pending = model.submit(ask(PROMPT, 12))
    first = next(pending).text

    pending.cancel()
    pending.cancel()

    assert model.kv_usage().in_use == 0
    result = pending.result()
    assert result.finish_reason is FinishReason.ABORT
    assert result.text.startswith(first)
    assert whole.startswith(result.text)
    model.check()


def test_a_request_that_is_cancelled_before_it_began_has_said_nothing():
    model = model_with_blocks(40, module=MODULE)
    pending = model.submit(ask(PROMPT, 12))

    pending.cancel()

    assert pending.result().text == ""
    assert pending.result().finish_reason is FinishReason.ABORT
    assert model.kv_usage().in_use == 0


def test_a_pending_request_that_is_dropped_is_cancelled():
    model = model_with_blocks(40, module=MODULE)
    pending = model.submit(ask(PROMPT, 12))
    next(pending)
    assert model.kv_usage().in_use > 0

    del pending
    gc.collect()

    assert model.kv_usage().in_use == 0


def test_coroutines_wait_side_by_side_and_a_cancelled_one_gives_its_blocks_back():
    model = model_with_blocks(60, module=MODULE)
    requests = [ask(random_ids(20 + n, seed=n), 10) for n in range(3)]
    expected = texts(tiny_model(module=MODULE), requests)

    async def main():
        endless = asyncio.create_task(model.agenerate(ask(random_ids(30, seed=9), 150)))
        results = await asyncio.gather(*map(model.agenerate, requests))
        endless.cancel()
        with pytest.raises(asyncio.CancelledError):
            await endless
        pieces = [chunk.text async for chunk in model.submit(requests[0])]
        return [result.text for result in results], "".join(pieces)

    assert asyncio.run(main()) == (expected, expected[0])
    assert model.kv_usage().in_use == 0
    model.check()


def test_one_impossible_request_among_others_is_one_failed_result():
    model = model_with_blocks(12, module=MODULE)
    good = [ask(random_ids(20 + n, seed=n), 10) for n in range(5)]
    requests = [*good[:2], ask(random_ids(60), 10), ask((999,), 3), *good[2:]]
    done = []

    results = model.map(requests, on_result=lambda *numbers: done.append(numbers))

    assert [result.text for result in results if result.error is None] == texts(model, good)
    assert [result.finish_reason for result in results].count(FinishReason.ERROR) == 2
    assert "the request needs 70 tokens but the KV pool" in results[2].error
    assert "InvalidInputError" in results[3].error
    assert done[-1] == (7, 7)
    assert [number for number, _ in done] == sorted(number for number, _ in done)
    assert model.map([]) == []


def test_a_failing_request_in_a_batch_harms_no_other(monkeypatch):
    """The pass of all three fails; then each is tried alone, and the one that it was fails."""
    model = tiny_model(module=MODULE)
    requests = [ask(random_ids(20 + n, seed=n), 10) for n in range(3)]
    expected = texts(tiny_model(module=MODULE), requests)
    forward = model._engine._model.forward

    def fail(rows, *args):
        if any(row[-1] == requests[1].token_ids[-1] for row in rows):
            raise RuntimeError("bad row")
        return forward(rows, *args)

    monkeypatch.setattr(model._engine._model, "forward", fail)
    results = model.map(requests)

    assert [result.error for result in results] == [None, "RuntimeError: bad row", None]
    assert [results[0].text, results[2].text] == [expected[0], expected[2]]
    assert model.kv_usage().in_use == 0
    model.check()


def test_a_failing_sampler_is_the_failure_of_its_own_request():
    model = tiny_model(module=MODULE)
    pending = [model.submit(ask(random_ids(20 + n, seed=n), 10)) for n in range(3)]

    def fail(_):
        raise RuntimeError("no choice")

    pending[1]._output._sampler.choose = fail

    assert pending[0].result().usage.completion_tokens == 10
    assert pending[2].result().usage.completion_tokens == 10
    with pytest.raises(RuntimeError, match="no choice"):
        pending[1].result()
    assert model.kv_usage().in_use == 0
    model.check()


def test_several_answers_to_one_prompt_compute_it_once():
    model = model_with_blocks(60, module=MODULE)
    request = ask(PROMPT, 12, temperature=1.0, seed=5)

    results = model.samples(request, 4)

    assert results[0].text == tiny_model(module=MODULE).generate(request).text
    assert len({result.text for result in results}) == 4
    assert [result.usage.cached_tokens for result in results] == [0, 21, 21, 21]
    assert model.stats().prefill_tokens == 21
    assert model.stats().forks == 3
    assert [result.text for result in model.samples(request, 4)] == [r.text for r in results]
    assert model.kv_usage().in_use == 0
    model.check()


def test_answers_that_find_no_room_beside_the_first_come_after_it():
    request = ask(PROMPT, 12, temperature=1.0, seed=5)
    expected = [r.text for r in tiny_model(module=MODULE).samples(request, 4)]
    small = model_with_blocks(10, module=MODULE, max_num_seqs=2)

    assert [result.text for result in small.samples(request, 4)] == expected
    assert small.kv_usage().in_use == 0
    small.check()


def test_a_full_queue_refuses_at_once_with_the_numbers():
    model = tiny_model(module=MODULE, max_waiting=2)
    pending = [model.submit(ask(PROMPT, 3)) for _ in range(2)]

    with pytest.raises(QueueFullError, match="2 requests wait already") as caught:
        model.submit(ask(PROMPT, 3))

    assert (caught.value.waiting, caught.value.limit) == (2, 2)
    assert all(one.result().usage.completion_tokens == 3 for one in pending)
    assert model.submit(ask(PROMPT, 3)).result().usage.completion_tokens == 3


def test_closing_ends_those_who_run_and_wait_with_an_error():
    model = tiny_model(module=MODULE, max_num_seqs=1)
    running, waiting = (model.submit(ask(random_ids(20, seed=n), 10)) for n in range(2))
    next(running)

    model.close()

    for pending in (running, waiting):
        with pytest.raises(InferenceError, match="is closed"):
            pending.result()


def test_a_request_with_a_higher_priority_begins_first():
    model = tiny_model(module=MODULE, max_num_seqs=1)
    low, high = ask(random_ids(20), 4), ask(random_ids(20, seed=1), 4)
    order = []
    pending = [
        model.submit(low),
        model.submit(dataclasses.replace(low, token_ids=random_ids(20, seed=2))),
        model.submit(dataclasses.replace(high, priority=5)),
    ]
    for number, one in enumerate(pending):
        one._output.signal.add(lambda number=number: order.append(number))

    while model._engine.step():
        pass

    assert list(dict.fromkeys(order)) == [2, 0, 1]


def test_threads_that_read_side_by_side_share_the_passes():
    model = tiny_model(module=MODULE)
    requests = [ask(random_ids(20, seed=n), 30) for n in range(6)]
    expected = texts(tiny_model(module=MODULE), requests)
    got = [None] * 6
    start = threading.Barrier(6)

    def read(n):
        stream = model.stream(requests[n])
        start.wait()
        got[n] = "".join(chunk.text for chunk in stream)

    threads = [threading.Thread(target=read, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)

    assert got == expected
    # Alone, each would have taken 30.
    assert model.stats().passes < 100
    model.check()


@pytest.mark.parametrize(
    "setting", [{"max_num_seqs": 0}, {"max_waiting": 0}, {"max_num_batched_tokens": 0}]
)
def test_an_engine_that_could_run_nothing_is_a_config_error(setting):
    with pytest.raises(ConfigError, match="must be at least 1"):
        tiny_model(module=MODULE, **setting)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cache_salt", None),
        ("cache_salt", b"x"),
        ("priority", "high"),
        ("priority", float("nan")),
        ("cache_priority", None),
        ("token_ids", None),
        ("token_ids", "abc"),
        ("timeout_s", float("nan")),
        ("timeout_s", "5"),
    ],
)
def test_a_request_of_wrong_types_is_refused_as_it_is_made(field, value):
    with pytest.raises(InvalidInputError, match=f"{field} must be a"):
        dataclasses.replace(ask(random_ids(9), 4), **{field: value})


@pytest.mark.parametrize("token_ids", [("a",), (1.0,), (True,), (1, None)])
def test_token_ids_are_whole_numbers(token_ids):
    with pytest.raises(InvalidInputError, match="a prompt is a tuple of token ids"):
        tiny_model().generate(ask(token_ids, 4))


@pytest.mark.parametrize("num", [0, -1, 1.5, "3", None, True, 9])
def test_no_number_of_samples_but_a_sensible_one(num):
    model = tiny_model(max_waiting=8)

    with pytest.raises(InvalidInputError, match="num must be an integer from 1 to 8"):
        model.samples(ask(random_ids(9), 4), num)


def test_two_threads_may_wait_for_one_request():
    model = tiny_model()
    pending = model.submit(ask(random_ids(9), 60))
    with ThreadPoolExecutor(4) as pool:
        results = [one.result() for one in [pool.submit(pending.result) for _ in range(4)]]

    assert len({id(one) for one in results}) == 1
    model.check()
