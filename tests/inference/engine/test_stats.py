"""What `LocalModel.stats` counts, and what it does not count twice."""

import dataclasses
import threading

import pytest

from agentmem.errors import InferenceError
from tests.inference.tiny import ask, model_with_blocks, random_ids, tiny_model, tiny_module

MODULE = tiny_module()
PROMPT = random_ids(22)


def test_a_new_model_has_done_nothing():
    stats = model_with_blocks(40, module=MODULE).stats()

    counted = {name: value for name, value in dataclasses.asdict(stats).items() if value}
    assert counted == {"kv_free": 40, "kv_total": 40}
    assert stats.prefix_hit_rate == 0


def test_hits_and_queries_are_the_cached_and_all_tokens_of_prompts():
    model = tiny_model(module=MODULE)

    results = [model.generate(ask(PROMPT, 3)) for _ in range(2)]
    results += model.samples(ask(random_ids(22, seed=1), 3), 3)

    stats = model.stats()
    assert stats.requests == 5
    assert stats.prefix_query_tokens == sum(result.usage.prompt_tokens for result in results)
    assert stats.prefix_hit_tokens == sum(result.usage.cached_tokens for result in results)
    assert stats.prefix_hit_rate == stats.prefix_hit_tokens / stats.prefix_query_tokens > 0
    assert stats.forks == 2


def test_passes_and_tokens_are_those_that_were_computed():
    model = tiny_model(module=MODULE)

    model.generate(ask(PROMPT, 4))

    stats = model.stats()
    # The last token is chosen and never computed.
    assert (stats.prefill_tokens, stats.decode_tokens, stats.passes) == (22, 3, 4)
    assert stats.batched_passes == 0


def test_a_pass_for_several_requests_is_a_batched_one():
    model = tiny_model(module=MODULE)
    pending = [model.submit(ask(random_ids(20, seed=n), 4)) for n in range(3)]

    for one in pending:
        one.result()

    assert 0 < model.stats().batched_passes <= model.stats().passes


def test_blocks_that_make_room_are_evictions_and_those_that_are_forgotten_are_not():
    model = model_with_blocks(12, module=MODULE)
    model.generate(ask(PROMPT, 2))
    model.forget(cache_salt="")
    assert model.stats().evictions == 0

    for seed in range(4):
        model.generate(ask(random_ids(22, seed=seed), 2))

    # Six blocks each, of which twelve are there.
    assert model.stats().evictions == 12
    assert model.stats().kv_cached + model.stats().kv_free == model.stats().kv_total == 12


def test_a_request_that_is_preempted_counts_once_and_its_tokens_as_often_as_computed():
    model = model_with_blocks(12, module=MODULE)
    model._engine._admission._share = 0.0
    pending = [model.submit(ask(random_ids(20 + n, seed=n), 10)) for n in range(2)]

    for one in pending:
        one.result()

    stats = model.stats()
    assert stats.preemptions > 0
    assert (stats.requests, stats.prefix_query_tokens, stats.prefix_hit_tokens) == (2, 41, 0)
    assert stats.prefill_tokens > 41


def test_a_request_that_starts_over_after_an_interrupt_counts_once():
    model = tiny_model(module=MODULE)
    pending = model.submit(ask(PROMPT, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model._engine._prefixes, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model._engine.step()

    pending.result()

    stats = model.stats()
    assert (stats.requests, stats.prefix_query_tokens, stats.prefix_hit_tokens) == (1, 22, 0)
    assert stats.prefill_tokens == 44


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_a_request_that_is_cancelled_before_it_starts_is_not_counted():
    model = tiny_model(module=MODULE)
    pending = model.submit(ask(PROMPT, 3))

    pending.cancel()

    assert model.stats().requests == 0
    assert model.stats().prefix_query_tokens == 0


def test_a_request_that_is_cancelled_in_the_middle_keeps_its_counts():
    model = tiny_model(module=MODULE)
    pending = model.submit(ask(PROMPT, 30))
    next(iter(pending))

    pending.cancel()

    stats = model.stats()
    assert (stats.requests, stats.prefix_query_tokens, stats.prefill_tokens) == (1, 22, 22)
    assert stats.kv_in_use == 0


def test_stats_are_read_while_a_step_is_taken(monkeypatch):
    model = tiny_model(module=MODULE)
    forward = model._engine._model.forward
    inside, go_on = threading.Event(), threading.Event()

    def slow(*args):
        inside.set()
        go_on.wait(10)
        return forward(*args)

    monkeypatch.setattr(model._engine._model, "forward", slow)
    thread = threading.Thread(target=lambda: model.generate(ask(PROMPT, 2)))
    thread.start()
    inside.wait(10)

    stats = model.stats()
    go_on.set()
    thread.join(60)

    assert (stats.requests, stats.passes) == (1, 0)
    assert model.stats().passes == 2


def test_a_closed_model_has_no_stats():
    model = tiny_model(module=MODULE)
    model.close()

    with pytest.raises(InferenceError, match="load it again"):
        model.stats()
