"""Models whose keys and values cannot be reused: right answers, and the reason counted."""

import pytest

from tests.inference.tiny import greedy_ids, plain_ids, random_ids, tiny_model, tiny_module

LENGTH = 40
"""Tokens of the prompts here."""


def longrope(switch):
    """Settings of a model whose keys change when the text is longer than *switch*."""
    parameters = {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "factor": 4.0,
        "short_factor": [1.0] * 4,
        "long_factor": [1.0, 2.0, 3.0, 4.0],
        "original_max_position_embeddings": switch,
    }
    return {"rope_parameters": parameters, "original_max_position_embeddings": switch}


@pytest.mark.parametrize(
    ("kind", "settings", "reason"),
    [
        (
            "llama",
            {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
            "dynamic RoPE",
        ),
        ("phi3", longrope(4 * LENGTH), "longrope RoPE"),
        ("phi3", longrope(LENGTH // 2), "longrope RoPE"),
        ("phi3", longrope(LENGTH + 4), "longrope RoPE"),
        ("mamba", {"state_size": 4}, "cannot be cut into blocks"),
    ],
)
def test_a_model_whose_state_cannot_be_reused_is_right_without_reuse(kind, settings, reason):
    module = tiny_module(kind, **settings)
    model = tiny_model(module=module)
    prompt = random_ids(LENGTH)

    for turn in range(2):
        chosen, result = greedy_ids(model, prompt, 12)
        assert chosen == plain_ids(module, prompt, 12)
        assert result.usage.cached_tokens == 0
        [(why, count)] = model.refused_reuse.items()
        assert reason in why
        assert count == turn + 1
    assert model.kv_usage().total == 0
    model.check()


def test_a_model_without_any_cache_is_run_over_the_whole_text():
    module = tiny_module("openai-gpt", n_embd=32, n_layer=2, n_head=4, n_positions=512)
    model = tiny_model(module=module)
    prompt = random_ids(20)

    chosen, _ = greedy_ids(model, prompt, 8)

    assert chosen == plain_ids(module, prompt, 8)
    assert list(model.refused_reuse) == ["the model takes no key-value cache"]
