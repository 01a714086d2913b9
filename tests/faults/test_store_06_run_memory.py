"""`kv_bytes` bounds the blocks and the buffers of running requests together."""

import random
import weakref

import pytest

from agentmem.errors import AdmissionError
from agentmem.inference.kv_cache.block_storage import KVBlockStorage
from agentmem.inference.runner.memory_plan import plan_memory
from agentmem.inference.runner.transformers_cache import RunLayer
from agentmem.types import FinishReason
from tests.inference.tiny import (
    ask,
    greedy_batch,
    model_with_blocks,
    plain_ids,
    random_ids,
    result_of,
    spied,
    tiny_model,
    tiny_module,
)

MODULE = tiny_module()
SLOT_BYTES = 3 * 2 * 2 * 8 * 4
BLOCK_BYTES = 4 * SLOT_BYTES


@pytest.fixture
def live_bytes(monkeypatch):
    """Measure what all tensors take that were made for blocks, runs and their shared parts."""
    monkeypatch.setattr("agentmem.inference.kv_cache.block_storage.SLAB_BYTES", 1 << 13)
    made = {}

    def spy(owner, name, tensors_of):
        original = getattr(owner, name)

        def wrapped(self, *args):
            result = original(self, *args)
            for tensor in tensors_of(result):
                made[id(tensor)] = weakref.ref(tensor)
            return result

        monkeypatch.setattr(owner, name, wrapped)

    reserve = RunLayer.reserve

    def measured(self, keys, values, slots):
        """Old and new buffers of a layer are there at the same time."""
        rows = keys.shape[0] if self.buffers is None else self.buffers[0].shape[0]
        new = rows * slots * 2 * keys.shape[1] * keys.shape[3] * keys.element_size()
        measure.peak = max(measure.peak, measure() + new)
        return reserve(self, keys, values, slots)

    monkeypatch.setattr(RunLayer, "reserve", measured)
    spy(RunLayer, "reserve", list)
    spy(KVBlockStorage, "gather", list)
    spy(KVBlockStorage, "_slab", lambda slab: [slab])

    def measure():
        alive = [tensor for tensor in (ref() for ref in made.values()) if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in alive)

    measure.peak = 0
    return measure


def mixed_load(rng, limit):
    """Short and long prompts, some that begin alike, each with how many tokens to generate."""
    common = random_ids(80, seed=rng.randrange(2))
    for number in range(14):
        own = random_ids(rng.choice((5, 20, 60)), seed=rng.randrange(1 << 20))
        prompt = (*common, *own) if rng.random() < 0.5 else own
        if number == 7:
            prompt = random_ids(limit - 30, seed=number)
        yield prompt, rng.choice((4, 12, 25))


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "num_blocks"), [(0, 110), (1, 150), (2, 260)])
def test_blocks_and_buffers_stay_within_kv_bytes_at_each_step(live_bytes, seed, num_blocks):
    rng = random.Random(seed)  # noqa: S311 - a load, not a secret
    kv_bytes = num_blocks * BLOCK_BYTES
    model = tiny_model(module=MODULE, kv_bytes=kv_bytes, prefill_chunk=32)
    live_bytes.peak = 0  # what was tried at loading is gone
    engine = model._engine
    load = list(mixed_load(rng, engine.usage().total * 4))
    outputs = [model._output(ask(prompt, num)) for prompt, num in load]
    chosen = [spied(output) for output in outputs]
    dropped = rng.sample(range(14), 2)

    waiting, most, steps = list(outputs), 0, 0
    while engine.step() or waiting:
        steps += 1
        assert steps < 2000, "it hangs"
        if waiting and rng.random() < 0.5:
            engine.add(waiting.pop(0).sequence)
        if steps == 40:
            for index in dropped:
                engine.cancel(outputs[index].sequence)
        engine.check()
        assert live_bytes() <= kv_bytes
        usage = engine.usage()
        assert usage.kv_bytes + usage.run_bytes == live_bytes()
        most = max(most, usage.run_bytes)

    for index, ((prompt, num), ids) in enumerate(zip(load, chosen, strict=True)):
        if index not in dropped:
            assert ids == plain_ids(MODULE, prompt, num)
            assert result_of(outputs[index]).finish_reason is not FinishReason.ERROR
    usage = engine.usage()
    assert live_bytes.peak <= kv_bytes
    assert 0 < most <= usage.max_run_bytes
    assert (usage.in_use, usage.run_bytes) == (0, 0)
    assert usage.max_kv_bytes + usage.max_run_bytes <= kv_bytes


@pytest.mark.parametrize("num_blocks", [4, 5, 20, 101])
def test_a_request_that_fills_the_pool_runs_and_one_token_more_is_refused(live_bytes, num_blocks):
    model = tiny_model(module=MODULE, kv_bytes=num_blocks * BLOCK_BYTES)
    live_bytes.peak = 0  # as above
    limit = model.kv_usage().total * 4
    prompt = random_ids(max(limit // 2, 2))
    num = limit - len(prompt)

    [(found, result)] = greedy_batch(model, [prompt], num)

    assert found == plain_ids(MODULE, prompt, num)
    assert result.finish_reason is not FinishReason.ERROR
    assert max(live_bytes(), live_bytes.peak) <= num_blocks * BLOCK_BYTES
    with pytest.raises(AdmissionError) as refused:
        model.submit(ask(prompt, num + 1))
    assert (refused.value.needed, refused.value.limit) == (limit + 1, limit)


def test_requests_whose_buffers_do_not_fit_side_by_side_wait_for_each_other():
    """There are blocks for all of them."""
    model = model_with_blocks(400, module=MODULE, run_slots=160)
    prompts = [random_ids(60, seed=seed) for seed in range(5)]
    outputs = [model._output(ask(prompt, 6)) for prompt in prompts]
    chosen = [spied(output) for output in outputs]
    engine, most = model._engine, 0
    for output in outputs:
        engine.add(output.sequence)

    while engine.step():
        most = max(most, len(engine._scheduler.running))

    assert most == 2
    assert chosen == [plain_ids(MODULE, prompt, 6) for prompt in prompts]
    assert model.stats().preemptions == 0


def test_what_rows_share_is_counted_once():
    """Their whole length would fit twice."""
    model = model_with_blocks(400, module=MODULE, run_slots=450)
    head = random_ids(200)
    prompts = [(*head, *random_ids(8, seed=seed)) for seed in range(8)]
    greedy_batch(model, [head], 1)
    outputs = [model._output(ask(prompt, 6)) for prompt in prompts]
    engine, most = model._engine, 0
    for output in outputs:
        engine.add(output.sequence)

    while engine.step():
        most = max(most, len(engine._scheduler.running))

    assert most == 8


@pytest.mark.slow
def test_rows_that_grow_past_what_was_hoped_are_preempted_and_say_the_same():
    model = model_with_blocks(400, module=MODULE, run_slots=170)
    model._engine._admission._share = 0.0
    prompts = [random_ids(20 + seed, seed=seed) for seed in range(4)]

    found = greedy_batch(model, prompts, 40)

    assert [ids for ids, _ in found] == [plain_ids(MODULE, prompt, 40) for prompt in prompts]
    assert model.stats().preemptions > 0


def test_several_answers_to_one_prompt_wait_where_their_buffers_do_not_fit():
    model = model_with_blocks(400, module=MODULE, run_slots=150)
    prompt = random_ids(50)

    results = model.samples(ask(prompt, 6), 5)

    assert len({result.text for result in results}) == 1
    assert all(result.finish_reason is not FinishReason.ERROR for result in results)
    assert model.kv_usage().run_bytes == 0


@pytest.mark.slow
def test_long_life_of_a_batch_takes_no_more_slots_than_its_rows():
    """Rows come and go; those that are there are short."""
    model = model_with_blocks(400, module=MODULE, run_slots=1 << 14)
    engine = model._engine
    outputs = [model._output(ask(random_ids(8, seed=seed), 40)) for seed in range(12)]

    most = 0
    for output in outputs:
        engine.add(output.sequence)
        for _ in range(19):
            engine.step()
            most = max(most, *(run.room.slots for run in engine._runner._memory._runs))
    while engine.step():
        pass

    assert most < 3 * 256


def test_prompts_of_different_lengths_are_not_padded_where_the_model_cannot_have_it():
    model = tiny_model(module=MODULE)
    model._engine._model.can_batch = model._engine._model.attends = False
    prompts = [random_ids(40, seed=seed)[: 36 + seed] for seed in range(4)]
    passes = []
    forward = model._engine._model.forward
    model._engine._model.forward = lambda rows, *more: (
        passes.append(len(rows)) or forward(rows, *more)
    )

    found = greedy_batch(model, prompts, 5)

    assert set(passes) == {1}
    assert [ids for ids, _ in found] == [plain_ids(MODULE, prompt, 5) for prompt in prompts]


@pytest.mark.parametrize("total", [4, 5, 6, 7, 99, 1000, 100_000])
@pytest.mark.parametrize("longest", [16, 300, 8192])
def test_a_plan_is_within_its_bytes_and_a_request_that_fits_the_pool_fits_the_buffers(
    total, longest
):
    plan = plan_memory(
        total * 100 + 7, block_bytes=100, block_size=4, longest=longest, max_num_seqs=16
    )

    assert (plan.num_blocks + 1) * 4 + plan.run_slots <= total * 4
    assert plan.num_blocks >= 1
    assert plan.run_slots >= min(plan.num_blocks * 4, longest) + 4
