"""
Reuse never changes an answer: token for token against the library's own `generate`, in float32.

Each architecture is a tiny random model; each scenario has a salt of its own, so that none finds
what another has left.
"""

from functools import cache

import pytest

from tests.inference.tiny import (
    ask,
    greedy_batch,
    greedy_ids,
    model_with_blocks,
    plain_ids,
    random_ids,
    tiny_model,
    tiny_module,
)

KINDS = [
    *("llama", "qwen2", "qwen3", "mistral", "phi3", "gemma2", "gemma3_text", "gpt2", "gpt_neox"),
    *("opt", "bloom", "falcon", "mpt", "stablelm", "olmo2", "cohere", "smollm3", "granite"),
    *("starcoder2", "deepseek_v3", "gpt_oss", "gemma", "phi", "gptj"),
]
NUM_TOKENS = 16
PROMPT = random_ids(43)


class Subject:
    """One architecture, and what it says without us."""

    def __init__(self, kind):
        self.module = tiny_module(kind)
        self.model = tiny_model(module=self.module)
        self.plain = cache(lambda prompt: plain_ids(self.module, prompt, NUM_TOKENS))

    def check(self, model, prompts, *, cached=None, salt=""):
        """Run side by side, and compare each."""
        found = greedy_batch(model, prompts, NUM_TOKENS, salt=salt)
        assert [chosen for chosen, _ in found] == [self.plain(prompt) for prompt in prompts]
        if cached is not None:
            assert [result.usage.cached_tokens for _, result in found] == cached
        model.check()
        assert model.kv_usage().in_use == 0
        return [tuple(chosen) for chosen, _ in found]


@pytest.fixture(scope="module", params=KINDS)
def subject(request):
    return Subject(request.param)


def test_it_is_reused_and_batched(subject):
    """If this fails the others prove nothing: the model would run alone and from scratch."""
    assert subject.model.refused_reuse == {}
    assert subject.model._engine._model.can_batch


def test_cold_and_hit(subject):
    subject.check(subject.model, [PROMPT], cached=[0], salt="hit")
    subject.check(subject.model, [PROMPT], cached=[42], salt="hit")


def test_a_ragged_batch_with_hits_beside_cold_prompts(subject):
    prompts = [PROMPT, random_ids(9, seed=1), random_ids(30, seed=2), (*PROMPT[:20], 1, 2, 3)]
    subject.check(subject.model, prompts[:1], salt="ragged")
    subject.check(subject.model, prompts, cached=[42, 0, 0, 20], salt="ragged")


def test_rows_that_share_a_long_prefix(subject):
    prefix = random_ids(90, seed=3)
    prompts = [prefix + random_ids(4 + 3 * n, seed=10 + n) for n in range(4)]
    subject.check(subject.model, prompts, cached=[0, 90, 90, 90], salt="shared")


def test_a_prefill_in_chunks(subject):
    model = tiny_model(module=subject.module, prefill_chunk=7)
    subject.check(model, [PROMPT, random_ids(30, seed=2)], cached=[0, 0])


def test_a_fork_in_the_middle_of_a_block(subject):
    subject.check(subject.model, [PROMPT], salt="fork")
    branch = (*PROMPT[:30], *random_ids(20, seed=4))
    subject.check(subject.model, [branch], cached=[30], salt="fork")

    results = subject.model.samples(ask(PROMPT, NUM_TOKENS, salt="samples"), 3)
    _, alone = greedy_ids(subject.model, PROMPT, NUM_TOKENS, salt="samples")
    assert {result.text for result in results} == {alone.text}
    assert [result.usage.cached_tokens for result in results] == [0, 43, 43]


@pytest.mark.slow
def test_preempted_and_taken_up_again(subject):
    """There is room for the three prompts alone, and the engine is made to hope for the best."""
    model = model_with_blocks(29, module=subject.module)
    model._engine._admission._share = 0.0
    prompts = [random_ids(36 + n, seed=20 + n) for n in range(3)]
    subject.check(model, prompts, cached=[0, 0, 0])
    assert model.stats().preemptions > 0


def test_a_second_turn_that_goes_on_from_generated_tokens(subject):
    [answer] = subject.check(subject.model, [PROMPT], salt="turn")
    turn = (*PROMPT, *answer, *random_ids(9, seed=5))
    # The last token of the answer was chosen and never computed.
    subject.check(subject.model, [turn], cached=[42 + len(answer)], salt="turn")
