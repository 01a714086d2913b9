import pytest

from agentmem.config import Budget, InferenceConfig, Sampling
from agentmem.errors import ConfigError


@pytest.mark.parametrize(
    "fields",
    [
        {"context": "a"},
        {"reply": 2.5},
        {"summary": "much"},
        {"summary": 1.5},
        {"retrieved": -1},
        {"context": 100, "reply": 50, "summary": 40, "retrieved": 40},
        {"reply": 0},
        {"context": 512, "reply": 512},
        {"low_water": -0.1},
        {"low_water": 1.1},
    ],
)
def test_a_budget_that_cannot_work_is_refused(fields):
    with pytest.raises(ConfigError):
        Budget(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 0},
        {"temperature": -1},
        {"temperature": float("inf")},
        {"temperature": float("nan")},
        {"top_p": 0},
        {"top_p": 1.5},
        {"top_k": 0},
        {"stop": ("",)},
        {"stop": "END"},
        {"stop": (1,)},
        {"seed": -1},
        {"seed": 2**63},
        {"seed": "a"},
        {"max_tokens": "3"},
        {"max_tokens": 2.5},
        {"top_k": True},
    ],
)
def test_sampling_that_cannot_work_is_refused(fields):
    with pytest.raises(ConfigError):
        Sampling(**fields)


@pytest.mark.parametrize(
    "fields", [{"dtype": "int3"}, {"block_size": 0}, {"kv_bytes": 0}, {"prefill_chunk": 0}]
)
def test_an_inference_config_that_cannot_work_is_refused(fields):
    with pytest.raises(ConfigError):
        InferenceConfig(**fields)
