"""`kv_bytes` bounds the caches too that models make for themselves, where nothing can be reused."""

import pytest

from agentmem.errors import AdmissionError
from agentmem.inference.runner.own_size import OwnSize
from agentmem.types import FinishReason
from tests.inference.runner.test_causal_model import longrope
from tests.inference.tiny import (
    ask,
    greedy_batch,
    plain_ids,
    random_ids,
    result_of,
    spied,
    tiny_model,
    tiny_module,
)

SLOT_BYTES = 3 * 2 * 2 * 8 * 4
REFUSED = {
    "phi3": longrope(400),
    "bert": {"num_key_value_heads": 4},
    "mamba": {"state_size": 4},
}


def steps_of(model, prompts, num):
    """Run all, and yield the bytes of their caches after each step."""
    outputs = [model._output(ask(prompt, num)) for prompt in prompts]
    chosen = [spied(output) for output in outputs]
    engine = model._engine
    for output in outputs:
        engine.add(output.sequence)
    while engine.step():
        engine.check()
        yield [one.own_cache for one in engine._scheduler.running], engine.usage()
    for prompt, ids, output in zip(prompts, chosen, outputs, strict=True):
        assert result_of(output).finish_reason is not FinishReason.ERROR
        assert ids == plain_ids(model._engine._model._module, prompt, num)


@pytest.mark.parametrize("kind", REFUSED)
def test_their_caches_stay_within_kv_bytes_at_each_step(kind):
    module = tiny_module(kind, **REFUSED[kind])
    kv_bytes = 300 * SLOT_BYTES
    model = tiny_model(module=module, kv_bytes=kv_bytes)
    assert model._engine._model.refusal
    prompts = [random_ids(60 + seed, seed=seed) for seed in range(6)]

    most = side_by_side = 0
    for caches, usage in steps_of(model, prompts, 8):
        keys = [
            tensor.numel() * tensor.element_size()
            for cache in caches
            if cache is not None
            for layer in cache.state.layers
            for tensor in (getattr(layer, "keys", None), getattr(layer, "values", None))
            if tensor is not None
        ]
        assert sum(keys) <= usage.run_bytes <= usage.max_run_bytes <= kv_bytes
        most, side_by_side = max(most, usage.run_bytes), max(side_by_side, len(caches))

    assert most > 0
    assert side_by_side > 1
    assert model.kv_usage().run_bytes == 0


def test_what_does_not_fit_beside_others_waits_and_what_never_fits_is_refused():
    module = tiny_module("phi3", **longrope(400))
    model = tiny_model(module=module, kv_bytes=105 * SLOT_BYTES)
    prompts = [random_ids(40, seed=seed) for seed in range(3)]

    assert max(len(caches) for caches, _ in steps_of(model, prompts, 8)) == 2
    [(found, _)] = greedy_batch(model, [random_ids(90)], 12)

    assert found == plain_ids(module, random_ids(90), 12)
    with pytest.raises(AdmissionError, match="cache") as refused:
        model.submit(ask(random_ids(90), 40))
    assert refused.value.needed == 130
    assert 95 <= refused.value.limit <= 105


def test_a_state_of_one_size_sets_no_end_to_a_text():
    model = tiny_model(module=tiny_module("mamba", **REFUSED["mamba"]))

    assert model._engine._model.own_size.longest(1 << 20) is None
    assert model._engine._model.own_size.fixed > 0


def test_how_much_fits():
    size = OwnSize(fixed=100, per_token=10)

    assert size.num_bytes(5) == 150
    assert [size.longest(num) for num in (50, 100, 155)] == [0, 0, 5]
    assert OwnSize(fixed=3).longest(5) is None
