"""
Reuse never changes an answer: what a pool and a buffer do in the course of time.

The architectures are in test_architectures.py; here are few of them, and the real model.
"""

import pytest
import torch

from agentmem.config import InferenceConfig
from agentmem.inference import LocalModel
from agentmem.types import Message, Role, TextPart
from tests.inference.tiny import (
    ask,
    greedy_ids,
    model_with_blocks,
    plain_ids,
    random_ids,
    tiny_model,
    tiny_module,
)

KINDS = ["llama", "gemma3_text", "gpt2"]
NUM_TOKENS = 24


@pytest.fixture(scope="module", params=KINDS)
def module(request):
    return tiny_module(request.param)


def check(model, module, prompt, *, cached):
    chosen, result = greedy_ids(model, prompt, NUM_TOKENS)
    assert chosen == plain_ids(module, prompt, NUM_TOKENS)
    assert result.usage.cached_tokens == cached
    model.check()
    return chosen


@pytest.mark.slow
def test_after_evictions_the_tokens_are_still_the_plain_ones(module):
    """The pool holds about two of the four prompts at a time."""
    size = tiny_model(module=module).kv_usage
    model = model_with_blocks(35, module=module)
    assert size().total > model.kv_usage().total == 35

    for turn in range(8):
        prompt = random_ids(40 + turn % 4, seed=turn % 4)
        chosen, _ = greedy_ids(model, prompt, NUM_TOKENS)
        assert chosen == plain_ids(module, prompt, NUM_TOKENS)
        model.check()


@pytest.mark.slow
def test_a_pool_that_grows_keeps_what_it_held(monkeypatch):
    monkeypatch.setattr("agentmem.inference.kv_cache.block_storage.SLAB_BYTES", 8192)
    module = tiny_module()
    model = tiny_model(module=module)
    prompts = [random_ids(60, seed=seed) for seed in range(5)]

    taken = []
    for prompt in prompts:
        check(model, module, prompt, cached=0)
        taken.append(model.kv_usage().kv_bytes)
    for prompt in prompts:
        check(model, module, prompt, cached=59)

    assert taken == sorted(set(taken))
    assert model.kv_usage().kv_bytes <= 1 << 20


@pytest.mark.slow
def test_a_buffer_that_grows_in_the_middle_of_an_answer_gives_the_plain_tokens(module, monkeypatch):
    monkeypatch.setattr("agentmem.inference.runner.batch_plan.SPARE_SLOTS", 1)
    model = tiny_model(module=module, prefill_chunk=7)
    prompt = random_ids(23)

    check(model, module, prompt, cached=0)
    check(model, module, prompt, cached=22)


def test_a_cold_prompt_gives_the_plain_logits_bit_for_bit(module, monkeypatch):
    model = tiny_model(module=module)
    prompt = random_ids(30)
    seen = []
    forward = model._engine._model.forward

    def spy(*args):
        seen.append(forward(*args))
        return seen[-1]

    monkeypatch.setattr(model._engine._model, "forward", spy)
    model.generate(ask(prompt, 1))

    with torch.inference_mode():
        plain = module(torch.tensor([prompt]), logits_to_keep=1).logits[0, -1]
    assert torch.equal(seen[0][0], plain)


QUESTIONS = [
    "What is the capital of France?",
    "Write one sentence about the sea.",
    "List three fruits.",
    "Ada has 3 apples and buys 4 more. How many has she?",
    "Say hello in Portuguese: olá, tudo bem? 你好 🙂",
]


@pytest.mark.model
def test_the_real_model_gives_the_plain_tokens_cold_and_warm(real_model_fp32):
    model = real_model_fp32
    module = model._engine._model._module
    facts = "You are a guide. " + " ".join(f"Room {n} costs {n * 7} EUR." for n in range(20))
    for question in QUESTIONS:
        prompt = model.counter.render(
            [
                Message(role=Role.SYSTEM, parts=(TextPart(text=facts),)),
                Message(role=Role.USER, parts=(TextPart(text=question),)),
            ]
        ).token_ids
        ids = torch.tensor([prompt])
        plain = module.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
        )[0, len(prompt) :].tolist()

        cold, first = greedy_ids(model, prompt, 24, salt=question)
        warm, second = greedy_ids(model, prompt, 24, salt=question)

        assert cold == warm == plain
        assert first.usage.cached_tokens == 0
        # A single token of a block is not worth copying the block for.
        assert len(prompt) - 2 <= second.usage.cached_tokens < len(prompt)
        assert first.text == second.text == model.counter.decode(plain).removesuffix("<|im_end|>")


@pytest.mark.model
def test_a_small_chunk_does_not_change_what_the_real_model_says(real_model_fp32):
    whole = real_model_fp32
    module = whole._engine._model._module
    chunked = LocalModel(
        module,
        whole.counter._encoder._tokenizer,
        config=InferenceConfig(dtype="float32", prefill_chunk=33),
    )
    prompt = whole.counter.render(
        [Message(role=Role.USER, parts=(TextPart(text="Tell me about Lisbon. " * 20),))]
    ).token_ids

    assert chunked.generate(ask(prompt, 24)).text == whole.generate(ask(prompt, 24)).text
