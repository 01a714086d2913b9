import gc
import threading

import pytest
import torch

from agentmem.errors import ConfigError, InferenceError
from tests.inference.tiny import (
    ask,
    greedy_ids,
    model_with_blocks,
    plain_ids,
    random_ids,
    tiny_model,
    tiny_module,
)

MODULE = tiny_module()


def test_the_accounts_add_up_before_during_and_after_a_request():
    model = model_with_blocks(40)
    prompt = random_ids(21)

    stream = model.stream(ask(prompt, 12))
    next(stream)
    during = model.kv_usage()
    list(stream)
    after = model.kv_usage()

    assert (during.free, during.cached, during.in_use, during.total) == (34, 0, 6, 40)
    assert after.in_use == 0
    assert after.free + after.cached == after.total == 40
    # Whole blocks of the prompt and of the answer; the last token was never computed.
    assert after.cached == (21 + 11) // 4
    model.check()


def test_closing_a_stream_gives_its_blocks_back_and_keeps_what_was_computed():
    model = model_with_blocks(40)
    prompt = random_ids(21)

    stream = model.stream(ask(prompt, 12))
    next(stream)
    stream.close()
    stream.close()

    assert model.kv_usage().in_use == 0
    assert model.generate(ask(prompt, 1)).usage.cached_tokens == 20
    model.check()


def test_a_stream_that_was_forgotten_gives_its_blocks_back():
    model = model_with_blocks(40)
    stream = model.stream(ask(random_ids(21), 12))
    next(stream)

    del stream
    gc.collect()

    assert model.kv_usage().in_use == 0


def test_a_stream_that_was_never_begun_holds_nothing():
    model = model_with_blocks(40)

    stream = model.stream(ask(random_ids(21), 12))

    assert model.kv_usage().free == 40
    stream.close()


def test_a_stream_that_ends_in_the_middle_of_a_step_is_finished_by_that_step():
    """The garbage collector may close a stream while the same thread is in another's step."""
    model = model_with_blocks(40)
    engine = model._engine
    stream = model.stream(ask(random_ids(21), 12))
    next(stream)

    def step():
        stream.close()
        assert engine._pool.num_free == 34

    engine._exclusive(step)

    assert model.kv_usage().in_use == 0
    model.check()


def test_a_failing_pass_gives_the_blocks_back_and_harms_nobody(monkeypatch):
    model = model_with_blocks(40)
    prompt = random_ids(21)
    calls = []
    forward = model._engine._model.forward

    def fail_at_the_third(*args):
        calls.append(1)
        if len(calls) == 3:
            raise RuntimeError("out of memory")
        return forward(*args)

    monkeypatch.setattr(model._engine._model, "forward", fail_at_the_third)
    with pytest.raises(RuntimeError):
        model.generate(ask(prompt, 8))

    assert model.kv_usage().in_use == 0
    model.check()
    assert model.generate(ask(prompt, 8)).usage.cached_tokens == 20


def test_salts_do_not_share_and_the_same_salt_does():
    model = tiny_model(module=MODULE)
    prompt = random_ids(21)
    model.generate(ask(prompt, 2, salt="u1"))

    assert model.generate(ask(prompt, 2, salt="u2")).usage.cached_tokens == 0
    assert model.generate(ask(prompt, 2)).usage.cached_tokens == 0
    assert model.generate(ask(prompt, 2, salt="u1")).usage.cached_tokens == 20


def test_a_discarded_prefix_is_gone_and_its_beginning_is_not():
    model = tiny_model(module=MODULE)
    prompt = random_ids(21)
    model.generate(ask(prompt, 1, salt="s"))

    model.discard_prefix(prompt, num_kept=8, cache_salt="other")
    # Five whole blocks, and the last token's.
    assert model.kv_usage().cached == 6
    model.discard_prefix(prompt, num_kept=8, cache_salt="s")

    assert model.kv_usage().cached == 2
    assert model.generate(ask(prompt, 1, salt="s")).usage.cached_tokens == 8


def test_threads_take_turns_and_each_gets_its_own_answer():
    model = model_with_blocks(60)
    prompts = [random_ids(20 + n, seed=n % 3) for n in range(6)]
    expected = [model.generate(ask(prompt, 10)).text for prompt in prompts]
    got = [None] * 6

    def run(n):
        got[n] = model.generate(ask(prompts[n], 10)).text

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert got == expected
    assert model.kv_usage().in_use == 0
    model.check()


def test_a_published_block_is_never_written_again(monkeypatch):
    model = tiny_model(module=MODULE, prefill_chunk=9)
    written = []
    write = model._engine._tensors.write

    def spy(blocks, source, *, first):
        written.extend(blocks)
        write(blocks, source, first=first)

    monkeypatch.setattr(model._engine._tensors, "write", spy)
    for _ in range(2):
        model.generate(ask(random_ids(21), 12))

    # The second answer is computed into blocks of its own, then found to be known.
    assert len(written) == len(set(written)) == 8 + 3
    assert model.kv_usage().cached == 8


def test_a_pool_too_small_for_one_block_is_a_config_error():
    with pytest.raises(ConfigError, match="holds less than 4 KV blocks of"):
        tiny_model(module=MODULE, kv_bytes=100)


def test_after_close_the_model_says_so_and_its_memory_is_back():
    model = model_with_blocks(40)
    stream = model.stream(ask(random_ids(21), 12))
    next(stream)
    engine = model._engine

    model.close()
    model.close()

    assert engine._tensors.num_bytes == 0
    with pytest.raises(InferenceError, match="is closed"):
        list(stream)
    with pytest.raises(InferenceError, match="is closed"):
        model.stream(ask(random_ids(21), 12))


def test_the_pool_holds_zeros_until_it_is_written():
    model = tiny_model(module=MODULE)
    slab = model._engine._tensors._slab(0)

    model.generate(ask(random_ids(9), 1))

    written = slab.abs().sum(1) > 0
    assert not written[0]
    assert int(written.sum()) == 3
    assert torch.isfinite(slab).all()


def test_a_request_that_computes_no_numbers_leaves_none_to_the_next(monkeypatch):
    module = tiny_module()
    model = tiny_model(module=module)
    wanted = plain_ids(module, random_ids(30), 8)
    embed = module.get_input_embeddings()
    with monkeypatch.context() as spoilt:
        spoilt.setattr(embed, "forward", lambda ids: torch.full((*ids.shape, 32), torch.nan))
        greedy_ids(model, random_ids(40, seed=1), 4)

    assert greedy_ids(model, random_ids(30), 8)[0] == wanted
