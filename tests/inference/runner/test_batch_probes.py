"""
What the trial at loading finds out: who may be batched and share, in any dtype.

A trial that is too strict for half precision costs no answer, only all of the speed; one that is
too lax costs answers. So right models are to pass in every dtype, and spoilt ones in none.
"""

import pytest
import torch

from agentmem.config import InferenceConfig
from agentmem.inference import LocalModel
from agentmem.inference.runner import batch_probes as probes
from agentmem.inference.runner.causal_model import CausalModel
from tests.end_to_end.test_architectures import KINDS
from tests.inference.tiny import tiny_module

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NOT_APART = {"gemma2", "gpt_oss", "bloom", "mpt", "mistral", "gemma3_text", "deepseek_v3"} | {
    "falcon",
    "stablelm",
}
"""Kinds with an attention of their own, or with layers that see only a window."""


def spoilt(kind, dtype, spoil):
    """A model whose forward pass has its arguments changed on the way."""
    module = tiny_module(kind).to(dtype)
    forward = type(module).forward

    class Spoilt(type(module)):
        def forward(self, input_ids=None, attention_mask=None, position_ids=None, **more):
            given = {"attention_mask": attention_mask, "position_ids": position_ids} | more
            return forward(self, input_ids=input_ids, **(given | spoil(given)))

    module.__class__ = Spoilt
    return CausalModel(module)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_every_architecture_is_batched_in_every_dtype(kind, dtype):
    model = CausalModel(tiny_module(kind).to(dtype))

    assert model.refusal is None
    assert model.can_batch
    assert model.attends == (kind not in NOT_APART)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3_text"])
def test_a_model_that_takes_padding_for_text_is_not_batched(kind, dtype):
    model = spoilt(kind, dtype, lambda _: {"attention_mask": None})

    assert not model.can_batch
    assert not model.attends


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_model_that_counts_padding_as_positions_is_not_batched(dtype):
    model = spoilt("gpt2", dtype, lambda _: {"position_ids": None, "attention_mask": None})

    assert not model.can_batch


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_model_that_does_not_look_at_the_shared_part_does_not_share(dtype, monkeypatch):
    model = CausalModel(tiny_module().to(dtype))
    assert model.attends

    cache = type(model.new_cache())
    monkeypatch.setattr(cache, "share", lambda _self, _parts: None)

    assert not probes.can_attend(model)


@pytest.mark.model
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_real_model_of_thirty_layers_is_batched(dtype):
    with LocalModel.load(config=InferenceConfig(dtype=dtype)) as model:
        assert model._engine._model.can_batch
        assert model._engine._model.attends
