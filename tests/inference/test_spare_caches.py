"""Run buffers go from one run to the next, without a trace of what was in them."""

import pytest
import torch

from agentmem.inference import spare_caches
from tests.inference.tiny import (
    ask,
    greedy_batch,
    greedy_ids,
    plain_ids,
    random_ids,
    tiny_model,
    tiny_module,
)

MODULE = tiny_module()


def spares_of(model):
    return model._engine._runner.spares


def test_the_next_run_takes_the_buffers_of_the_last():
    model = tiny_model(module=MODULE)
    prompts = [random_ids(30, seed=n) for n in range(5)]
    wanted = [plain_ids(MODULE, prompt, 8) for prompt in prompts]

    for prompt, ids in zip(prompts, wanted, strict=True):
        assert greedy_ids(model, prompt, 8)[0] == ids
    [kept] = spares_of(model)._caches

    assert greedy_ids(model, prompts[0], 8)[0] == wanted[0]
    assert spares_of(model)._caches == [kept]


def test_what_is_kept_holds_nothing_of_what_was_said():
    model = tiny_model(module=MODULE)
    prompts = [random_ids(30, seed=n) for n in range(3)]

    greedy_ids(model, prompts[0], 8)
    greedy_batch(model, prompts, 8)

    kept = spares_of(model)._caches
    assert {cache.num_rows for cache in kept} == {1, 4}
    for cache in kept:
        assert all(bool((buffer == 0).all()) for buffer in cache._buffers())
        assert not any(layer.shared for layer in cache._run_layers)


def test_a_request_that_computes_no_numbers_leaves_none_to_the_next(monkeypatch):
    model = tiny_model(module=MODULE)
    wanted = plain_ids(MODULE, random_ids(30), 8)
    embed = MODULE.get_input_embeddings()
    with monkeypatch.context() as spoilt:
        spoilt.setattr(embed, "forward", lambda ids: torch.full((*ids.shape, 32), torch.nan))
        greedy_ids(model, random_ids(40, seed=1), 4)

    assert greedy_ids(model, random_ids(30), 8)[0] == wanted


def test_a_run_that_fails_midway_leaves_nothing(monkeypatch):
    model = tiny_model(module=MODULE)
    wanted = plain_ids(MODULE, random_ids(30), 8)
    last = MODULE.model.layers[-1].mlp

    def fail(*_):
        raise RuntimeError("no memory")

    with monkeypatch.context() as spoilt:
        spoilt.setattr(last, "forward", fail)
        with pytest.raises(RuntimeError, match="no memory"):
            model.generate(ask(random_ids(40, seed=1), 4))

    [kept] = spares_of(model)._caches
    assert all(bool((buffer == 0).all()) for buffer in kept._buffers())
    assert greedy_ids(model, random_ids(30), 8)[0] == wanted


def test_only_so_much_is_kept(monkeypatch):
    model = tiny_model(module=MODULE)
    greedy_ids(model, random_ids(30), 8)
    size = spares_of(model).num_bytes

    monkeypatch.setattr(spare_caches, "MAX_SPARE_BYTES", size)
    greedy_batch(model, [random_ids(30, seed=n) for n in range(3)], 8)
    assert 0 < spares_of(model).num_bytes <= size

    monkeypatch.setattr(spare_caches, "MAX_SPARE_BYTES", 0)
    greedy_ids(model, random_ids(30), 8)
    assert spares_of(model).num_bytes == 0


def test_closing_gives_them_back():
    model = tiny_model(module=MODULE)
    greedy_ids(model, random_ids(30), 8)
    spares = spares_of(model)
    assert spares.num_bytes > 0

    model.close()

    assert spares.num_bytes == 0
