"""Models that choose experts by numbers which rounding changes reuse nothing in half precision."""

import pytest
import torch

from agentmem.inference.runner import routing_probe
from agentmem.inference.runner.causal_model import CausalModel
from tests.inference.tiny import (
    greedy_batch,
    greedy_ids,
    plain_ids,
    random_ids,
    tiny_model,
    tiny_module,
)

EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 16}
ROUTED = {
    "phimoe": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2_moe": EXPERTS | {"num_experts": 4, "shared_expert_intermediate_size": 16},
    "qwen3_moe": EXPERTS | {"num_experts": 4},
    "olmoe": {"num_experts": 4, "num_experts_per_tok": 2},
    "granitemoe": {"num_local_experts": 4, "num_experts_per_tok": 2},
}
HALF = [torch.bfloat16, torch.float16]


def routed(kind, dtype):
    return tiny_module(kind, **ROUTED[kind]).to(dtype)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("kind", ROUTED)
def test_a_warm_run_says_what_a_cold_one_and_generate_say(kind, dtype):
    """Either rounding decides nothing, or nothing is reused, with a reason."""
    module = routed(kind, dtype)
    model = tiny_model(module=module)
    prompts = [random_ids(40, seed=seed) for seed in (8, 10, 18)]
    expected = [plain_ids(module, prompt, 8) for prompt in prompts]

    cold = [greedy_ids(model, prompt, 8)[0] for prompt in prompts]
    warm = [greedy_ids(model, prompt, 8)[0] for prompt in prompts]
    together = [ids for ids, _ in greedy_batch(model, prompts, 8)]

    assert cold == warm == together == expected


@pytest.mark.slow
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_phimoe_in_half_precision_is_refused_with_a_reason(dtype):
    model = tiny_model(module=routed("phimoe", dtype))
    model._engine._model.is_bitwise = False  # also on a processor whose passes all agree

    greedy_ids(model, random_ids(20), 3)

    assert routing_probe.rounding_decides(model._engine._model)
    for reason in model.refused_reuse:
        assert "decides" in reason
        assert "float32" in reason


@pytest.mark.parametrize("kind", ROUTED)
def test_in_float32_experts_are_reused(kind):
    module = routed(kind, torch.float32)
    model = tiny_model(module=module)
    prompt = random_ids(40)

    greedy_ids(model, prompt, 6)
    found, result = greedy_ids(model, prompt, 6)

    assert found == plain_ids(module, prompt, 6)
    assert result.usage.cached_tokens == 39


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("kind", ["llama", "gemma3_text", "gpt2", "bloom", "mistral"])
def test_a_model_that_chooses_nothing_is_not_refused(kind, dtype):
    model = CausalModel(tiny_module(kind).to(dtype))

    assert model.refusal is None
    assert not routing_probe.rounding_decides(model)


class Chooser(torch.nn.Module):
    """Adds one of two vectors of that size, by which of two numbers is larger."""

    def __init__(self, inner, size):
        super().__init__()
        self.inner, self.size = inner, size

    def forward(self, hidden):  # (rows, tokens, hidden)
        out = self.inner(hidden)
        chosen = hidden[..., :2].argmax(-1, keepdim=True) * 2 - 1
        pattern = torch.linspace(-1, 1, out.shape[-1], dtype=out.dtype)
        scale = out.norm(dim=-1, keepdim=True) / pattern.norm()
        return out + self.size * scale * chosen * pattern


@pytest.mark.parametrize(("size", "is_refused"), [(0.001, False), (1.0, True)])
def test_a_choice_counts_by_what_it_does_to_the_answer(size, is_refused):
    """One that changes little is rounding like any other."""
    module = tiny_module()
    for parameter in module.parameters():
        parameter.data.mul_(0.3)
    module.lm_head = Chooser(module.lm_head, size)
    model = CausalModel(module.to(torch.bfloat16))

    assert routing_probe.rounding_decides(model) == is_refused
