"""Encoders that are loaded as decoders: they look ahead, so nothing of a part can be reused."""

import pytest
import torch

from agentmem.inference.runner.causal_model import CausalModel
from agentmem.types import FinishReason
from tests.inference.tiny import greedy_ids, plain_ids, random_ids, tiny_model, tiny_module

ENCODERS = ["bert", "camembert", "data2vec-text", "electra", "roberta", "xlm-roberta"]


@pytest.mark.parametrize("kind", ENCODERS)
def test_an_encoder_reuses_nothing_and_says_what_generate_says(kind):
    """`generate()` lets it look ahead in the prompt, and keeps that for the tokens that follow."""
    module = tiny_module(kind)
    model = tiny_model(module=module)

    for seed in range(3):
        prompt = random_ids(30, seed=seed)
        expected = plain_ids(module, prompt, 8)
        for _ in range(2):
            found, result = greedy_ids(model, prompt, 8)
            assert found == expected
            assert result.usage.cached_tokens == 0
    [reason] = model.refused_reuse
    assert "in parts" in reason


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bert", "camembert", "data2vec-text", "roberta"])
def test_the_same_class_as_a_decoder_reuses_and_counts_positions_as_generate_does(kind):
    module = tiny_module(kind, is_decoder=True)
    model = tiny_model(module=module)

    for seed in range(3):
        prompt = random_ids(30, seed=seed)
        expected = plain_ids(module, prompt, 8)
        assert greedy_ids(model, prompt, 8)[0] == expected
        found, result = greedy_ids(model, prompt, 8)
        assert found == expected
        assert result.usage.cached_tokens > 0
    assert dict(model.refused_reuse) == {}


@pytest.mark.parametrize("num", [1, 4, 8])
def test_the_decoder_of_an_encoder_decoder_ends_where_there_is_no_room_as_its_settings_say(num):
    """Blenderbot's force the last token to be the one that ends a text."""
    sizes = {"d_model": 32, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
    module = tiny_module("blenderbot", decoder_layers=2, encoder_layers=1, **sizes)
    prompt = random_ids(30)

    found, result = greedy_ids(tiny_model(module=module), prompt, num)

    assert found == plain_ids(module, prompt, num)
    assert found[-1] == module.generation_config.forced_eos_token_id
    assert result.finish_reason is FinishReason.LENGTH


class Rounding(torch.nn.Module):
    """Adds to the logits what depends on how many tokens a pass has, as routing that flips does."""

    def __init__(self, inner, share):
        super().__init__()
        self.inner, self.share = inner, share

    def forward(self, hidden):  # (rows, tokens, hidden)
        logits = self.inner(hidden)
        flip = torch.linspace(-1, 1, logits.shape[-1], dtype=logits.dtype) * self.share
        return logits + flip * logits.norm() * (self.tokens % 2)


@pytest.mark.parametrize(("share", "is_refused"), [(0.001, False), (0.5, True)])
def test_a_model_in_half_precision_that_rounds_too_far_apart_reuses_nothing(share, is_refused):
    module = tiny_module().to(torch.bfloat16)
    head = Rounding(module.lm_head, share)
    module.lm_head = head
    module.register_forward_pre_hook(
        lambda _, __, named: setattr(head, "tokens", named["input_ids"].shape[1]), with_kwargs=True
    )

    refusal = CausalModel(module).refusal

    assert (refusal is not None) == is_refused
